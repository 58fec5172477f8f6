"""The report's page: what it says of runs that are made up, and that nothing in them can do harm."""

import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from m2ac.cli import main
from m2ac.cli.reporting import make_page
from m2ac.report.charts import Chart, Variant, apart, belongs, by_variant, compact, labels, panels, styles, token
from m2ac.report.page import charts_of, page
from m2ac.report.records import Record
from m2ac.report.rendering import image, svg
from m2ac.report.series import average, evaluations, last_list
from m2ac.report.summary import best_of_tasks, improvements, summarise

MADE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
HOSTILE = "</script><script>alert(1)</script>\"'>]]><!--<img src=x onerror=alert(2)>$x$ \x1b[31m\u202e"


def record(
    seed=0, final=100.0, *, env="Pendulum-v1", algo="m2ac", horizon=1, settings="", state="finished", steps=2000
):
    """A run that was at 0 after half of its steps, and at `final` in two episodes 10 apart at their end."""
    evals = [
        {"step": step, "episode": episode, "seed": 7, "return": value, "length": 200, "seconds": 1.0}
        for step, values in ((steps // 2, (0.0, 0.0)), (steps, (final - 5, final + 5)))
        for episode, value in enumerate(values)
    ]
    metrics = [
        {
            "step": step,
            "seconds": 60.0 * step / 1000,
            "trust/share_kept": 0.5,
            "trust/uncertainty_kept": 1.0,
            "trust/uncertainty_dropped": 3.0,
            "trust/nonfinite_rows": 0,
            "fresh/rank_ovr": 0.25,
            "fresh/rank_ova": 0.3,
            "fresh/rank_nll": 0.1,
            "fresh/error_trusted": 0.2,
            "fresh/error_distrusted": 0.4,
            "fresh/relative_error_trusted": 1.0,
            "fresh/relative_error_distrusted": 1.5,
            "fresh/inside_50_obs": 0.48,
            "fresh/inside_50_reward": 0.5,
            "fresh/inside_90_obs": 0.88,
            "fresh/inside_90_reward": 0.9,
            "fresh/open_loop_error": [0.1, 0.2, 0.4],
            "critic/value": 10.0,
            "critic/return": 12.0,
            "critic/bias": -3.0,
        }
        for step in (steps // 2, steps)
    ]
    return Record(
        name=f"{env}-{algo}-{settings}-s{seed}",
        env=env,
        algo=algo,
        horizon=horizon,
        seed=seed,
        steps=steps,
        settings=settings,
        state=state,
        config={"env": env, "algo": algo, "mask": {"rate": 0.25}},
        environment={"packages": {"m2ac": "9.8.7", "jax": "0.0.1"}},
        command=f"m2ac train --env {env} --seed {seed}",
        evals=evals,
        metrics=metrics,
    )


class Seen(HTMLParser):
    """What a browser would find in the page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text.append(data)


def cells(text):
    """The rows of the first table as plain text."""
    rows = re.findall(r"<tr data-of.*?</tr>", text.partition("</table>")[0], flags=re.S)
    return [[re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td.*?</td>", row, flags=re.S)] for row in rows]


def test_overview_has_mean_deviation_interquartile_mean_and_time():
    scores = [100.0, 200.0, 300.0, 1000.0]
    text = page([record(seed, score) for seed, score in enumerate(scores)], title="t", made=MADE)
    (row,) = cells(text)
    # mean 400, √((300² + 200² + 100² + 600²)/4) = 353.6; the middle half is 200 and 300; 60 s in 1000 steps
    assert row[:5] == ["Pendulum-v1", "M2AC H=1", "4", "2,000", "400.0 ± 353.6"]
    assert row[5].startswith("250.0 [")
    assert row[6:] == ["1,000 at 2,000", "2 min"]


def test_one_seed_has_no_deviation_and_no_interval():
    (row,) = cells(page([record(0, -144.1)], title="t", made=MADE))
    assert row[4:6] == ["−144.1", "–"]


def test_unfinished_runs_are_left_out_beside_finished_ones_and_else_said_with_their_step():
    runs = [record(0, 10.0), record(1, 20.0), record(2, 999.0, state="unfinished")]
    (row,) = cells(page(runs, title="t", made=MADE))
    assert row[4] == "15.0 ± 5.01 unfinished left out"
    (row,) = cells(page(runs[2:], title="t", made=MADE))
    assert row[4] == "999.0at step 2,000, unfinished"


def test_a_seed_that_is_repeated_is_no_further_seed():
    (row,) = cells(page([record(0, 10.0), record(0, 10.0), record(1, 20.0)], title="t", made=MADE))
    assert row[2] == "23 runs, seeds repeated"


def test_a_diverged_run_is_counted_and_not_averaged():
    (row,) = summarise([record(0, 10.0), record(1, 30.0), record(2, math.nan)])
    assert (row.mean, row.deviation, row.diverged, row.runs) == (20.0, 10.0, 1, 3)


def test_probability_of_improvement_is_told_for_pairs_with_two_seeds_each():
    runs = [record(s, score) for s, score in enumerate([3.0, 4.0])]
    runs += [record(s, score, algo="mbpo") for s, score in enumerate([1.0, 3.5])]
    runs += [record(0, 50.0, algo="sac", horizon=None)]
    (pair,) = improvements(runs)
    assert (pair.better.algo, pair.worse.algo, pair.probability) == ("m2ac", "mbpo", 0.75)  # 3 of 4 pairs
    text = page(runs, title="t", made=MADE)
    assert "75 %" in text
    assert "75 %" not in page(runs[:3], title="t", made=MADE)


def test_a_run_that_is_still_learning_neither_loses_nor_counts_in_the_time():
    runs = [record(s, 9.0) for s in range(2)]
    learning = [record(s, 1.0, state="unfinished", steps=1000) for s in range(2, 4)]
    assert improvements([*runs, *(replace(run, algo="mbpo") for run in learning)]) == []
    (row,) = summarise([*runs, *learning])
    assert row.seconds == 120  # 60 s in 1000 steps, of which the finished ones have 2000


def test_runs_that_differ_in_the_seed_alone_are_one_variant():
    groups = by_variant(
        [record(1), record(0), record(0, settings="mask.rate=0.5"), record(0, algo="sac", horizon=None)]
    )
    assert [v.name for v in groups] == ["M2AC, H=1", "M2AC, H=1, mask.rate=0.5", "SAC"]
    assert [run.seed for run in next(iter(groups.values()))] == [0, 1]


def test_average_goes_on_with_the_seeds_that_got_as_far():
    found = average([[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)], [(1.0, 4.0), (2.0, 8.0)], []])
    assert found.steps.tolist() == [1.0, 2.0, 3.0]
    assert found.mean.tolist() == [3.0, 6.0, 6.0]
    assert found.deviation.tolist() == [1.0, 2.0, 0.0]


def test_average_leaves_out_steps_that_a_seed_has_skipped():
    found = average([[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)], [(1.0, 4.0), (3.0, 8.0)]])
    assert found.steps.tolist() == [1.0, 3.0]


def test_every_task_has_its_charts():
    charts = charts_of([record(0), record(1), record(0, env="Swimmer", algo="mbpo")])
    kinds = ["learning", "kept", "rank", "halves", "calibration", "open-loop", "critic"]
    assert sorted(chart.slug for chart in charts) == sorted(
        f"{kind}-{task}" for kind in kinds for task in ("Pendulum-v1", "Swimmer")
    )


def test_a_run_without_metrics_lacks_their_charts_and_one_without_anything_is_still_listed():
    bare = replace(record(0), metrics=())
    assert [chart.slug for chart in charts_of([bare])] == ["learning-Pendulum-v1"]
    nothing = replace(record(0), metrics=(), evals=(), environment={}, config={}, state="unfinished")
    assert charts_of([nothing]) == []
    assert "no evaluation yet" in page([nothing], title="t", made=MADE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e308, 10**400, None, "text", [1.0], True, {}])
def test_odd_numbers_break_nothing(value):
    odd = record(0)
    rows = [dict.fromkeys(row, value) | {"step": row["step"]} for row in odd.metrics]
    evals = [{**row, "return": value} for row in odd.evals]
    text = page([replace(odd, metrics=rows, evals=evals), record(1)], title="t", made=MADE)
    assert cells(text)[0][2] == "2"
    page([replace(odd, metrics=[{"step": value}, {}], evals=[{"step": value}, {}])], title="t", made=MADE)


def test_one_point_is_drawn_as_one():
    single = replace(record(0), metrics=record(0).metrics[-1:], evals=record(0).evals[-2:])
    for chart in charts_of([single]):
        assert "data-of" in svg(chart.figure, prefix="x")


def test_the_same_runs_give_the_same_bytes():
    runs = [record(seed, 10.0 * seed, algo=algo) for seed in range(2) for algo in ("m2ac", "mbpo")]
    assert page(runs, title="t", made=MADE) == page(runs[::-1], title="t", made=MADE)
    (first, *_), (again, *_) = charts_of(runs), charts_of(runs)
    assert image(first.figure, "svg") == image(again.figure, "svg")
    assert image(first.figure, "png") == image(again.figure, "png")


def test_hostile_text_is_shown_and_does_nothing():
    evil = replace(
        record(0, env=HOSTILE, algo="m2ac", settings=HOSTILE),
        name=HOSTILE,
        command=HOSTILE,
        config={HOSTILE: HOSTILE},
        environment={"packages": {"m2ac": HOSTILE}, HOSTILE: [HOSTILE]},
        film=b"RIFF",
    )
    chart = Chart("x", HOSTILE, HOSTILE, panels([1.0], styles([Variant.of(evil)]))[0], (HOSTILE,))
    text = page([evil, record(0)], title=HOSTILE, figures=[chart], made=MADE)
    seen = Seen(text)
    assert seen.tags.count("script") == 1
    assert {tag for tag, name, _ in seen.attributes if name.startswith("on")} == set()
    assert [value for tag, name, value in seen.attributes if tag == "img" and name == "src"] == [
        "data:image/webp;base64,UklGRg=="
    ]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count("</script>") == 1
    assert "]]>" not in text
    shown = "".join(seen.text)
    assert HOSTILE.partition("$")[0] in shown


def test_everything_hostile_is_in_attributes_only_as_a_token():
    tag = Variant(HOSTILE, "m2ac", None, HOSTILE).tag
    assert re.fullmatch(r"[A-Za-z0-9.=_~|-]+", tag)
    assert tag.count("|") == 3
    assert token("a b") != token("a_b") != token("a~20~b")


def test_the_page_allows_its_own_script_alone_and_asks_for_nothing_else():
    text = page([record(0)], title="t", made=MADE)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; ")
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/]{43}='", policy)
    links = [(tag, value) for tag, name, value in Seen(text).attributes if name in ("src", "href", "action", "data")]
    assert all(value.startswith(("#", "data:")) for _, value in links)
    assert "refresh" not in text.partition("<style>")[0]
    assert '<meta http-equiv="refresh" content="5">' in page([record(0)], title="t", made=MADE, refresh=True)


def test_ids_are_unique_and_every_link_within_the_page_has_its_target():
    runs = [record(seed, env=env) for seed in range(2) for env in ("A", "B")]
    attributes = Seen(page(runs, title="t", made=MADE)).attributes
    ids = [value for _, name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids))
    links = {value[1:] for _, name, value in attributes if name == "href"}
    links |= {value[len("url(#") : -1] for _, name, value in attributes if name == "clip-path"}
    assert links <= set(ids)


def test_further_figures_have_a_section_of_their_own():
    chart = Chart("x", "Figure 9", "how to read it", panels([1.0], {})[0])
    text = page([record(0)], title="t", figures=[chart], made=MADE)
    assert "Figure 9" in text
    assert "how to read it" in text
    assert 'id="figures"' not in page([record(0)], title="t", made=MADE)


def test_an_artist_that_belongs_to_a_variant_carries_its_tag():
    variant = Variant("Hopper", "mbpo", 10, "")
    figure = Figure()
    (line,) = figure.subplots().plot([1, 2], [1, 2], color="#000000")
    belongs(line, variant)
    text = svg(figure, prefix="p", label="l")
    assert 'data-of="Hopper|mbpo|10|usual"' in text
    assert "var(--ink)" in text
    assert not re.search(r"#[0-9a-f]{6}", text)
    assert text.startswith("<svg ")


def test_an_algorithm_keeps_its_colour_and_its_variants_differ():
    variants = [Variant("A", "m2ac", 10, ""), Variant("A", "m2ac", 1, ""), Variant("A", "m2ac", 1, "mask.rate=0.5")]
    looks = styles([*variants, Variant("B", "m2ac", 1, "")])
    assert looks[variants[0]].colour == looks[Variant("B", "m2ac", 1, "")].colour == "#0072b2"
    assert len({(look.colour, look.dashes) for look in looks.values()}) == 3


def test_labels_are_cut_only_where_they_still_differ():
    short, long, longer = (Variant("A", "m2ac", 1, "x" * n) for n in (1, 80, 81))
    assert labels([short, long])[long].endswith("…")
    assert labels([long, longer]) == {long: long.name, longer: longer.name}


def test_slugs_become_file_names_that_differ_and_that_a_file_system_has_room_for():
    charts = [Chart(slug, "", "", Figure()) for slug in ("a", "A", "a", "a-2", "b" * 400, "b" * 401)]
    slugs = [chart.slug.lower() for chart in apart(charts)]
    assert len(set(slugs)) == 6
    assert max(map(len, slugs)) < 200


def test_numbers_on_an_axis_are_short():
    assert [compact(x) for x in (0, 0.25, -1500, 20_000, 3e6)] == ["0", "0.25", "−1.5k", "20k", "3M"]


def test_the_best_run_of_a_task_is_the_finished_one_with_the_highest_last_return():
    runs = [record(0, 5.0), record(1, 9.0), record(2, 99.0, state="unfinished"), record(3, math.nan)]
    assert [run.seed for run in best_of_tasks(runs)] == [1]


def test_an_evaluation_is_the_mean_of_its_episodes():
    assert [tuple(each) for each in evaluations(record(0, 7.0))] == [(1000, 0.0), (2000, 7.0)]
    assert last_list(record(0), "fresh/open_loop_error") == [(1.0, 0.1), (2.0, 0.2), (3.0, 0.4)]


# The command

WEBP = b"RIFF\x04\x00\x00\x00WEBP"


def write_run(path, *, seed=0, done=True):
    """A run directory with as much in it as a report reads."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"env": "Pendulum-v1", "algo": "sac", "seed": seed, "steps": 500}))
    rows = "".join(f"500,{episode},{7},{-100.0 - episode},200,1.0\n" for episode in range(3))
    (path / "evals.csv").write_text("step,episode,seed,return,length,seconds\n" + rows)
    (path / "metrics.jsonl").write_text(json.dumps({"step": 500, "seconds": 30.0}) + "\n")
    if done:
        (path / "DONE").write_text("")


def test_the_command_writes_the_page_beside_the_runs(tmp_path, capsys):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", seed=1, done=False)
    assert main(["report", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path}/runs/report.html\n"
    text = (tmp_path / "runs" / "report.html").read_text()
    assert "<b>2 runs</b> · 1 finished, <em>1 unfinished</em>" in text
    assert [each for each in (tmp_path / "runs").iterdir() if each.name.startswith(".")] == []


def test_the_command_writes_charts_for_a_paper(tmp_path, capsys):
    write_run(tmp_path / "a")
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--out", str(out), "--figures", str(tmp_path / "f" / "g")]) == 0
    assert sorted(each.name for each in (tmp_path / "f" / "g").iterdir()) == [
        "learning-Pendulum-v1.png",
        "learning-Pendulum-v1.svg",
    ]
    assert (tmp_path / "f" / "g" / "learning-Pendulum-v1.png").read_bytes().startswith(b"\x89PNG")


def test_no_run_is_an_error_that_says_what_to_do(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "there is no run in" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "missing")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_a_page_that_cannot_be_written_is_said(tmp_path, capsys):
    write_run(tmp_path / "a")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "no" / "page.html")]) == 1
    assert "give another --out" in capsys.readouterr().err


def test_a_damaged_run_is_told_of_and_the_others_are_shown(tmp_path, capsys):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b")
    (tmp_path / "b" / "config.json").write_text("{")
    assert main(["report", str(tmp_path), "--figures", str(tmp_path / "f")]) == 0
    assert capsys.readouterr().err.count("warning: left out:") == 1


def test_watching_rewrites_the_page_when_a_run_has_come_further(tmp_path, capsys, monkeypatch):
    write_run(tmp_path / "a", done=False)
    out = tmp_path / "report.html"
    seen = []

    def sleep(_):
        text = out.read_text()
        seen.append(('http-equiv="refresh"' in text, "all finished" in text))
        if len(seen) == 1:
            (tmp_path / "a" / "DONE").write_text("")
        if len(seen) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("m2ac.cli.reporting.time.sleep", sleep)
    assert main(["report", str(tmp_path), "--watch"]) == 0
    assert seen == [(True, False), (True, True)]
    assert 'http-equiv="refresh"' not in out.read_text()


def test_watching_goes_on_while_there_is_nothing_to_see(tmp_path, capsys, monkeypatch):
    write_run(tmp_path / "runs" / "a")
    out, away, seen = tmp_path / "report.html", tmp_path / "away", []

    def sleep(_):
        seen.append("all finished" in out.read_text())
        if len(seen) == 1:
            (tmp_path / "runs").rename(away)
        if len(seen) == 3:
            (away / "a" / "DONE").unlink()
            away.rename(tmp_path / "runs")
        if len(seen) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("m2ac.cli.reporting.time.sleep", sleep)
    assert main(["report", str(tmp_path / "runs"), "--out", str(out), "--watch"]) == 0
    assert seen == [True, True, True, False]
    assert capsys.readouterr().err.count("is not a directory") == 1


def test_films_are_made_of_the_best_run_that_has_none(tmp_path, monkeypatch):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", seed=1, done=False)
    asked = []

    def film(path, *, warn):
        asked.append(str(path))
        return WEBP

    monkeypatch.setattr("m2ac.runs.film.film_or_none", film)
    for _ in range(2):
        assert main(["report", str(tmp_path), "--films"]) == 0
    assert asked == [str(tmp_path / "a")]
    assert "data:image/webp;base64,UklGRg" in (tmp_path / "report.html").read_text()


def test_a_film_that_is_none_is_not_shown(tmp_path):
    write_run(tmp_path / "a")
    (tmp_path / "a" / "film.webp").write_bytes(b"<svg onload=alert(1)>")
    assert main(["report", str(tmp_path)]) == 0
    assert "data:image" not in (tmp_path / "report.html").read_text()


def test_the_page_is_opened_on_request(tmp_path, monkeypatch):
    write_run(tmp_path / "a b")
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert main(["report", str(tmp_path / "a b"), "--open"]) == 0
    assert opened == [(tmp_path / "a b" / "report.html").as_uri()]


def test_another_command_can_add_its_figures(tmp_path):
    write_run(tmp_path / "a")
    out = make_page([tmp_path], tmp_path / "p.html", "T", lambda runs: [Chart("x", f"{len(runs)} drawn", "", Figure())])
    assert "1 drawn" in out.read_text()
