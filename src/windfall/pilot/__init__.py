"""The pilot: runs on a site's host, pulls tasks, runs them, reports.  With `wire` and `errors` it is one zipapp.

Standard library only, syntax and library of Python 3.6.  The processes, from the root of the tree:

    guardian            the process that was started; reaps and kills whatever the others leave behind
     └─ agent           network, agenda, files; one epoll loop
         ├─ spawner     starts tasks, captures output, enforces limits; a few of them, each with several slots
         │   ├─ task    one session each
         │   └─ runner  warm Python process for calls, one per slot
         └─ spawner …

    main      arguments, ticket, guardian           agenda, seats   the pure machine: what to run, what to say
    agent     joins agenda, lanes, stations, files   lanes, link     HTTP
    spawner   slot, spawn, capture, verdict, …      runner          what runs inside the warm process
"""
