"""``python -m stoker`` is the command ``stoker``."""

from ._process import main

main()
