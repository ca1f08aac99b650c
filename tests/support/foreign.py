"""Text of somebody who would rather write to the terminal than be read."""

# Clears the screen, sets its title, forges a line, is markup and an emoji of rich, and turns the direction of writing.
HOSTILE = "\x1b[2J\x1b]0;x\x07\nerror: forged [bold]b[/bold] [red] :smile: \x9b1m\u202e"
# How it stands in what is printed.
SHOWN = r"\x1b[2J\x1b]0;x\x07\nerror: forged [bold]b[/bold] [red] :smile: \x9b1m\u202e"


def assert_is_text(*printed: str, lines_of_text: bool = False) -> None:
    """No character moves the cursor, and no line begins as a foreign text would have it."""
    for text in printed:
        odd = {each for each in text if not each.isprintable() and each != "\n"}
        assert not odd, f"{odd} in {text!r}"
        forged = [line for line in text.split("\n") if line.lstrip().startswith("error: forged")]
        assert not forged or lines_of_text, forged
