#!/bin/sh
# The node has failed if its job has, or if it has left nothing.
[ "$1" = 0 ] && [ -s total.txt ]
