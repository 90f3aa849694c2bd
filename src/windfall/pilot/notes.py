"""Sentences for a person, fit to travel: of bounded length, and nothing in them that is not text."""

LONGEST = 500


def short(text, longest=LONGEST):
    """The text, cut in the middle if it is long; bytes that were no text (surrogates) become question marks."""
    text = str(text)
    if len(text) > longest:
        head = (longest - 3) * 2 // 3
        text = text[:head] + "..." + text[len(text) - (longest - 3 - head):]
    return text.encode("utf-8", "replace").decode("utf-8")
