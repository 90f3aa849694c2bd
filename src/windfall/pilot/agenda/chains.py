"""Chains: tasks that run one after the other, never two at a time (T7, T8).  Pure.

Theory
  * A chain is known by its bag and its number.  One of its tasks has the *turn*: it is queued, placed or finishing.
    The others stand in *line*, in the order granted, and are no business of the queue.
  * When the process of the one whose turn it is has ended, the next in line has the turn.  A task that is *behind*
    another attempt has to wait until all is known of that one.
  * A task behind an attempt that did not succeed is not for us to run: it goes back, and all that is behind it.
  * More tasks of a chain may come while it runs: they join the line.
"""


class Line:
    __slots__ = ("key", "turn", "tasks")

    def __init__(self, key):
        self.key = key
        self.turn = None         # attempt
        self.tasks = {}          # attempt → Task, in the order granted


class Chains:
    __slots__ = ("lines", "later")

    def __init__(self):
        self.lines = {}          # (bag, number) → Line
        self.later = {}          # attempt → Task: all that stand in line

    def join(self, task, key):
        """True if it is its turn; otherwise it stands in line."""
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = Line(key)
        task.chain = line
        if line.turn is None and not line.tasks and task.behind is None:
            line.turn = task.attempt
            return True
        line.tasks[task.attempt] = self.later[task.attempt] = task
        return False

    def remove(self, task):
        """It does not stand in line any more."""
        self.later.pop(task.attempt, None)
        task.chain.tasks.pop(task.attempt, None)

    def stranded(self, task):
        """Those that wait for what will not come: this task did not succeed."""
        return [each for each in task.chain.tasks.values() if each.behind == task.attempt]

    def pass_on(self, task, held):
        """It does not run any more: the task whose turn it is now, or None.  `held(attempt)`: is it in our hands?"""
        line = task.chain
        if line.turn == task.attempt:
            line.turn = None
        if line.turn is not None:
            return None
        if not line.tasks:
            if self.lines.get(line.key) is line:  # it may be over, and another one begun
                del self.lines[line.key]
            return None
        following = line.tasks[next(iter(line.tasks))]
        if following.behind is not None and held(following.behind):
            return None
        self.remove(following)
        line.turn = following.attempt
        return following

    def following(self):
        """The first in every line that waits for nobody's result."""
        firsts = [line.tasks[next(iter(line.tasks))] for line in self.lines.values() if line.tasks]
        return [task for task in firsts if task.behind is None]

    def goes_on(self, task):
        """Is more of its chain to come?"""
        line = task.chain
        return line is not None and bool(line.tasks or line.turn not in (None, task.attempt))

    def problem(self):
        """A sentence when a rule of this module is broken, else "" (for tests)."""
        waiting = [attempt for line in self.lines.values() for attempt in line.tasks]
        if sorted(waiting) != sorted(self.later):
            return "who stands in line is not who waits"
        if any(line.turn in line.tasks for line in self.lines.values()):
            return "somebody has the turn and stands in line"
        if any(line.turn is None and not line.tasks for line in self.lines.values()):
            return "a chain without tasks"
        return ""
