"""The server: a single writer around the core, and HTTP around the writer.

    main.py       a server of its own: `windfall serve`
    embedded.py   a server inside another process: `windfall run`
    local.py      the pilot of this machine, started and watched
    home.py       the data folder, and where the server is to be found
    runtime.py    everything wired together and served
    writer.py     events in; decide, apply, flush, then release
    recovery.py   from journal and snapshot back to a core
    clock.py      the core's time
    http.py       connections, requests and answers on httptools and uvloop
    listen.py     Unix socket, TLS, how fast connections are taken
    tls.py        the certificate
    routes.py     which call does what
    schema.py     what the calls carry, as records
    auth.py       who is asking, and from where
    tokens.py     what a token looks like
    disk.py       room on the disk
    exchange.py   the pilots' call
    grants.py     from granted task numbers to rendered commands
    bags.py       the users' calls
    admin.py      tokens, sites, pilots, health
    rows.py       rows of results, from facts or from views
    subscribe.py  what happens, as it happens
    project.py    views, kept up lazily
    retention.py  forgetting what was removed
    logs.py       live output
    blobs.py      file contents in and out
    metrics.py    numbers for Prometheus
    openapi.py    the interface, described by itself
"""
