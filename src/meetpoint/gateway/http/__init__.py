"""HTTP: routes, bodies, errors, access, protocol and pages. Nothing here knows of events."""
