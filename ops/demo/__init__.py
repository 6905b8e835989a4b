"""The demo: a whole cluster on this machine, its master taken away again and again, then an audit."""
