"""`python -m datago COMMAND`."""

from datago.cli import main

raise SystemExit(main())
