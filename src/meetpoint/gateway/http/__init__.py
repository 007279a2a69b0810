"""HTTP: routes, bodies, errors, access, limits and timeouts. Nothing here knows of events."""
