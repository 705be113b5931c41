"""A package of environments that shoal does not know, as others publish them: to import it is to register them."""

import gymnasium

gymnasium.register("Stroll-v0", entry_point="strolls.walk:Stroll", max_episode_steps=12)
