"""The demo: a whole cluster on this machine, its master taken away again and again, and an audit of it all."""
