"""``python -m bounds`` is ``trm-bounds``."""

from bounds.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
