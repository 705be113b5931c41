"""Every published figure of shoal: how it is measured, and its result. Not part of the wheel; see __main__.py."""
