"""The pilot: the process on a site's host that pulls tasks, runs them and reports.

The pilot uses the standard library and syntax of Python 3.6 only; with `wire` and `errors` it is one zipapp.  The
processes, from the root of the tree:

    guardian            the first process; reaps and kills the processes that the others leave
     └─ agent           network, agenda, files; one epoll loop
         ├─ spawner     starts tasks, captures output, enforces limits; a few of them, each with several slots
         │   ├─ task    one session each
         │   └─ runner  warm Python process for calls, one per slot
         └─ spawner …

    main      arguments, ticket, guardian           agenda, seats   pure decisions: run, report, poll
    agent     joins agenda, lanes, spawners, files  lanes, link     HTTP
    spawner   slot, spawn, capture, verdict, …      runner          the code inside the warm process
"""
