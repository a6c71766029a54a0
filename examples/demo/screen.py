"""The output of the demo: with colours on a terminal, unless NO_COLOR is set."""

BOLD, DIM, RED, GREEN, CYAN = "1", "2", "31", "32", "36"


class Screen:
    def __init__(self, file, environ):
        self._file = file
        self._colours = file.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    def say(self, text="", colour=None):
        line = f"\033[{colour}m{text}\033[0m" if colour and self._colours else text
        print(line, file=self._file, flush=True)

    def back(self, lines):
        """Go back to an earlier line of a terminal."""
        self._file.write(f"\033[{lines}A")

    def clear_line(self):
        self._file.write("\033[2K")

    def title(self, number, text):
        self.say()
        self.say(f"--- {number}. {text}", BOLD)

    def step(self, line):
        """Show a line of a handler: a call, or an answer and what an error adds to it."""
        if line.startswith("      "):
            self.say(line, DIM)
        elif not line.startswith("   -> "):
            self.say(line, CYAN)
        else:
            self.say(line, RED if any(each in line for each in FAILURES) else GREEN)


FAILURES = ("OutsideFilter", "409", "None")
