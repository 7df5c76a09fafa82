"""``python -m bounds`` is ``trm-bounds``."""

from bounds.surface.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
