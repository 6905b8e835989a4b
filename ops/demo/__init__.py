"""The demo: a whole cluster on this machine, its leader taken away again and again, then an audit."""
