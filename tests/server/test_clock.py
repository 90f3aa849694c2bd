from windfall.server.clock import Clock


def test_follows_the_monotonic_clock_whatever_the_wall_clock_does():
    wall, steady = [5_000_000_000], [100_000_000]
    clock = Clock(0, lambda: wall[0], lambda: steady[0])
    assert clock.now() == 5_000
    wall[0] = 0
    steady[0] += 7_000_000
    assert clock.now() == 5_007


def test_never_starts_before_the_journal():
    assert Clock(9_000, lambda: 5_000_000_000, lambda: 0).now() == 9_000
