"""Chains: tasks that run one after the other, never two at a time (T7, T8).  Pure.

Theory
  * A chain is known by its bag and its number.  At most one of its tasks is the *current* one: it is queued, placed or
    finishing.  The others wait in the chain, in the order granted, and are not in the agenda's queue.
  * When the process of the current task has ended, the next task of the chain becomes current.  A task with a
    *previous* attempt waits until the outcome of that attempt is known.
  * A task whose previous attempt did not succeed is returned to the server, and so are all tasks that depend on it.
  * More tasks of a chain may come while it runs: they join its end.
"""


class Chain:
    __slots__ = ("key", "current", "waiting")

    def __init__(self, key):
        self.key = key
        self.current = None      # attempt
        self.waiting = {}        # attempt → HeldTask, in the order granted


class Chains:
    __slots__ = ("chains", "waiting")

    def __init__(self):
        self.chains = {}         # (bag, number) → Chain
        self.waiting = {}        # attempt → HeldTask: the waiting tasks of all chains

    def join(self, task, key):
        """Add a task to its chain; return True if it is the current task, False if it waits."""
        chain = self.chains.get(key)
        if chain is None:
            chain = self.chains[key] = Chain(key)
        task.chain = chain
        if chain.current is None and not chain.waiting and task.previous is None:
            chain.current = task.attempt
            return True
        chain.waiting[task.attempt] = self.waiting[task.attempt] = task
        return False

    def remove(self, task):
        """Take a task out of those that wait."""
        self.waiting.pop(task.attempt, None)
        task.chain.waiting.pop(task.attempt, None)

    def dependants(self, task):
        """Return the waiting tasks whose previous attempt is this one."""
        return [other for other in task.chain.waiting.values() if other.previous == task.attempt]

    def advance(self, task, held):
        """Note that a task does not run any more; return the task that becomes current, or None.

        `held(attempt)` says whether the pilot still holds an attempt.
        """
        chain = task.chain
        if chain.current == task.attempt:
            chain.current = None
        if chain.current is not None:
            return None
        if not chain.waiting:
            if self.chains.get(chain.key) is chain:  # a new chain may have taken the key
                del self.chains[chain.key]
            return None
        successor = chain.waiting[next(iter(chain.waiting))]
        if successor.previous is not None and held(successor.previous):
            return None
        self.remove(successor)
        chain.current = successor.attempt
        return successor

    def next_unblocked(self):
        """Return the first waiting task of each chain where that task has no previous attempt."""
        firsts = [chain.waiting[next(iter(chain.waiting))] for chain in self.chains.values() if chain.waiting]
        return [task for task in firsts if task.previous is None]

    def has_more(self, task):
        """Does the task's chain have another task that has not ended?"""
        chain = task.chain
        return chain is not None and bool(chain.waiting or chain.current not in (None, task.attempt))

    def problem(self):
        """Return a sentence when a rule of this module is broken, else "" (for tests)."""
        waiting = [attempt for chain in self.chains.values() for attempt in chain.waiting]
        if sorted(waiting) != sorted(self.waiting):
            return "the waiting tasks of the chains are not the waiting tasks of all"
        if any(chain.current in chain.waiting for chain in self.chains.values()):
            return "a task is current and waits"
        if any(chain.current is None and not chain.waiting for chain in self.chains.values()):
            return "a chain has no tasks"
        return ""
