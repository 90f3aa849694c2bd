"""Messages between pilot and server.  Standard library and Python 3.6 only: this package ships in the zipapp."""
