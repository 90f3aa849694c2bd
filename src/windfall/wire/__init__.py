"""Messages between pilot and server.  Standard library only, Python 3.6 syntax: this ships in the zipapp."""
