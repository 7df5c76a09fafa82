"""The task: a chain of operations modulo 7, worked out line by line, on a form of fixed width.

A prompt is ``3+5*2-6        :``, an answer ``3+5=1;1*2=2;2-6=3.``: one line for each operation, from left to right,
and the digit before the full stop is the result. Every operation is a bijection of the running value (7 is prime,
no operand is 0), so that a mistake never heals by itself: a long answer is right only if all its lines are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CHARACTERS = "0123456+-*=;:. "
VOCABULARY = len(CHARACTERS)
MODULUS = 7
END = CHARACTERS.index(".")
_CODE = {c: k for k, c in enumerate(CHARACTERS)}
_OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


@dataclass(frozen=True)
class Task:
    """Chains of ``least`` to ``most`` numbers."""

    least: int = 12
    most: int = 20

    @property
    def prompt_length(self) -> int:
        """Tokens of every prompt: the form is filled up with blanks."""
        return 2 * self.most

    @property
    def horizon(self) -> int:
        """T: tokens of the longest right answer, 6 a line."""
        return 6 * (self.most - 1)

    def problem(self, rng: np.random.Generator) -> tuple[str, int]:
        """Draw one prompt and the right result."""
        count = int(rng.integers(self.least, self.most + 1))
        numbers = rng.integers(1, MODULUS, count)
        signs = rng.choice(list(_OPERATIONS), count - 1)
        value = int(numbers[0])
        text = str(value)
        for sign, number in zip(signs, numbers[1:], strict=True):
            value = _OPERATIONS[sign](value, int(number)) % MODULUS
            text += f"{sign}{number}"
        return text.ljust(self.prompt_length - 1) + ":", value

    def problems(self, rng: np.random.Generator, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Draw prompts [count, prompt_length] as tokens, and the right results [count]."""
        pairs = [self.problem(rng) for _ in range(count)]
        return np.array([encode(text) for text, _ in pairs]), np.array([value for _, value in pairs])


def working(prompt: str, rng: np.random.Generator, mistakes: float) -> str:
    """Write an answer in which each line is wrong with probability ``mistakes``, all that follows goes on from it."""
    text = prompt.rstrip(" :")
    value, lines = int(text[0]), []
    for sign, number in zip(text[1::2], text[2::2], strict=True):
        result = _OPERATIONS[sign](value, int(number)) % MODULUS
        if rng.random() < mistakes:
            result = (result + int(rng.integers(1, MODULUS))) % MODULUS
        lines.append(f"{value}{sign}{number}={result}")
        value = result
    return ";".join(lines) + "."


def is_right(answer: str, result: int) -> bool:
    """Whether an answer has ended, with the right digit before its full stop."""
    return answer.endswith(f"{result}.")


def encode(text: str) -> list[int]:
    """Turn characters into tokens."""
    return [_CODE[c] for c in text]


def decode(tokens: npt.ArrayLike) -> str:
    """Turn tokens into characters."""
    return "".join(CHARACTERS[k] for k in np.asarray(tokens))
