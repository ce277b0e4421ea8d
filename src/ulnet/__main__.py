"""`python -m ulnet` is `ulnet`."""

from ulnet.cli.ulnet import main

raise SystemExit(main())
