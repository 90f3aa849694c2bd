"""The server: a single writer around the core, and HTTP around the writer.

    main.py       `windfall serve`: a server in a process of its own
    embedded.py   `windfall run`: a server inside another process
    runtime.py    builds the parts of a server and connects them
    writer.py     the single writer: decide, apply, flush, then release
    recovery.py   restores the core from snapshot and journal
    retention.py  deletes removed bags from the journal, and blobs that no bag needs
    clock.py      the core's time
    grants.py     turns granted task numbers into rendered commands
    metrics.py    figures for Prometheus
    http/         sockets, TLS, tokens, routes, and the records of requests and responses
    calls/        one module per group of API calls: bags, blobs, pilots' exchange, logs, sites and tokens
    views/        query tables folded from the journal, and the streams of events for subscribers
    dataflow/     output files of earlier tasks as inputs of later ones
    files/        disk space, quotas, and the checks of files that pilots name
    local/        the data folder, this machine's pilot, and the provisioner inside the server
"""
