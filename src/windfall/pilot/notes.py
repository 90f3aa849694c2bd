"""Sentences for people, made fit for a message: of bounded length, and valid text."""

LONGEST = 500


def short(text, longest=LONGEST):
    """Return a text, cut in the middle if it is long; surrogates (bytes that were not UTF-8) become question marks."""
    text = str(text)
    if len(text) > longest:
        head = (longest - 3) * 2 // 3
        text = text[:head] + "..." + text[len(text) - (longest - 3 - head):]
    return text.encode("utf-8", "replace").decode("utf-8")
