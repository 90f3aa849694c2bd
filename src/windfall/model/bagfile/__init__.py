"""Bag files: `load` reads a file, `parse` reads text; both return a `Parsed` with the bag and its uploads."""

from windfall.model.bagfile.reader import Parsed as Parsed, load as load, parse as parse
