"""A trained policy in forms that need no m2ac: made as bytes, and compared with the agent before anybody gets them."""
