'use strict';
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const facets = ['task', 'algo', 'horizon', 'settings']; // in the order of a tag's parts
  const chips = all('.chip input');
  let off = {};

  // Stores may be forbidden, as for files in some browsers; then nothing is remembered.
  const remember = (name, value) => { try { sessionStorage.setItem(name, value); } catch { /* not remembered */ } };
  const recall = (name) => { try { return sessionStorage.getItem(name); } catch { return null; } };

  /* Filters: what is unchecked is hidden, in the table, in the charts and among the runs alike. */

  function isOff(tag) {
    return tag.split('|').some((part, place) => off[facets[place]].has(part));
  }

  function hide(element, hidden) {
    element.classList.toggle('off', hidden);
  }

  function apply() {
    if (!one('.filters')) return; // such a page shows everything
    off = Object.fromEntries(facets.map((facet) => [facet, new Set()]));
    for (const chip of chips) if (!chip.checked) off[chip.dataset.facet].add(chip.value);

    for (const element of all('[data-of]')) {
      hide(element, [element.dataset.of, element.dataset.against].some((tag) => tag && isOff(tag)));
    }
    for (const chart of all('.chart')) {
      const series = all('svg [data-of]', chart);
      const tasks = chart.dataset.tasks ? chart.dataset.tasks.split(' ') : [];
      const noTask = tasks.length > 0 && tasks.every((task) => off.task.has(task));
      hide(chart, noTask || (series.length > 0 && series.every((each) => each.classList.contains('off'))));
    }
    // A group or a section with nothing left in it goes as well.
    for (const group of [...all('.group'), ...all('main > section')]) {
      const parts = all('.chart, [data-of]:not(svg *)', group);
      hide(group, parts.length > 0 && parts.every((part) => part.classList.contains('off')));
    }
    const runs = all('.run');
    const shown = runs.filter((run) => !run.classList.contains('off')).length;
    const changed = chips.some((chip) => !chip.checked);
    one('#count').textContent = changed ? `${shown} of ${runs.length} runs shown` : '';
    one('#everything').hidden = !changed;
    one('#nothing').hidden = shown > 0;
  }

  function write() {
    const state = new URLSearchParams();
    for (const chip of chips) if (!chip.checked) state.append('hide', `${chip.dataset.facet}.${chip.value}`);
    const hash = `#${state}`;
    try {
      history.replaceState(null, '', hash);
    } catch {
      location.replace(hash);
    }
  }

  function read() {
    const hidden = new Set(new URLSearchParams(location.hash.slice(1)).getAll('hide'));
    for (const chip of chips) chip.checked = !hidden.has(`${chip.dataset.facet}.${chip.value}`);
    apply();
  }

  function showEverything() {
    for (const chip of chips) chip.checked = true;
    apply();
    write();
  }

  /* Tables: a click on a heading sorts by it, another one turns the order round. What is missing stays last. */

  function sort(heading) {
    const descending = heading.getAttribute('aria-sort')
      ? heading.getAttribute('aria-sort') === 'ascending'
      : heading.classList.contains('number');
    for (const other of heading.parentElement.children) other.removeAttribute('aria-sort');
    heading.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
    const numeric = heading.classList.contains('number');
    const value = (row) => {
      const given = row.cells[heading.cellIndex].dataset.sort;
      return numeric ? (given ? Number(given) : NaN) : given;
    };
    const compare = (a, b) => {
      if (!numeric) return a.localeCompare(b, undefined, { numeric: true }) * (descending ? -1 : 1);
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return (a - b) * (descending ? -1 : 1);
    };
    const body = heading.closest('table').tBodies[0];
    body.append(...[...body.rows].sort((a, b) => compare(value(a), value(b))));
  }

  /* Commands: copied, or at least selected where a page may not copy. */

  async function copy(button) {
    const command = button.parentElement.querySelector('code');
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = 'copied';
    } catch {
      getSelection().selectAllChildren(command);
      button.textContent = 'selected';
    }
    setTimeout(() => { button.textContent = 'copy'; }, 1500);
  }

  /* Light and dark. */

  function toggleTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    remember('theme', root.dataset.theme);
  }

  const theme = recall('theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;

  for (const chip of chips) chip.addEventListener('change', () => { apply(); write(); });
  for (const button of all('.everything')) button.addEventListener('click', showEverything);
  for (const button of all('th button')) button.addEventListener('click', () => sort(button.closest('th')));
  for (const button of all('.copy')) button.addEventListener('click', () => copy(button));
  for (const link of all('a[href^="#"]')) {
    link.addEventListener('click', (event) => { // the address has the filters behind its #
      event.preventDefault();
      const target = document.getElementById(link.getAttribute('href').slice(1));
      if (target) target.scrollIntoView();
    });
  }
  one('#theme').addEventListener('click', toggleTheme);
  addEventListener('hashchange', read);
  read();

  // A page that is watched reloads itself: what was opened stays open.
  const opened = new Set((recall('opened') || '').split(' '));
  for (const run of all('.run')) {
    if (opened.has(run.id)) run.open = true;
    run.addEventListener('toggle', () => remember('opened', all('.run[open]').map((each) => each.id).join(' ')));
  }
})();
