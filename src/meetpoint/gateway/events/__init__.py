"""Events over HTTP: publishing, server-sent events, WebSockets, CloudEvents."""
