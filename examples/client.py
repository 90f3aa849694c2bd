"""A bag made and run from Python: `./windfall serve --pilot &`, then `.venv/bin/python examples/client.py`."""

from windfall import Client
from windfall.model.spec import Bag, Range, Sweep, Target

squares = Target(command="echo $(({x} * {x}))", source=Sweep(axes=[Range(name="x", first=1, last=5)]))
with Client() as client:                 # the server of this account
    bag = client.submit(Bag(name="squares", targets=[squares])).wait()
    for row in bag.results():
        print(row["params"], bag.logs(row["task"]).strip())
