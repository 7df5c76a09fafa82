r"""A budget of D in place of a threshold: one setting of a trainer follows what its steps spend.

For every step |J(theta) - J(roll) - L'| <= D times the spread of the reward. So what may be spent is
D* = fraction L' / spread, at which L' exceeds its own error by 1 / fraction. For small steps L' grows with the learning
rate, the passes over a batch or the threshold of a mask, and D with its square: D / L' grows with the setting itself.
The rule, after each step, with L' and D of responses that the step did not learn from (of others L' is too large)::

    1.  L  <- memory L + (1 - memory) L'         2.  D  <- memory D + (1 - memory) D of the step
    3.  factor <- fraction L / (spread D)        4.  factor <- 1/2 if L <= 0, or anything is unknown
    5.  factor <- within [1/2, 5/4]              6.  setting <- setting times factor, within [low, high]

**What holds.** The inequality, at each step, for the D of that step. Where D / L' is c times the setting and memory is
0, the factor is fraction / (c setting), within its limits: the setting halves, or rises by a quarter, until it is
fraction / c, and stays there. With memory it swings around that first.

**What does not.** That the next step keeps to the budget: D is an estimate, and of the step before (the budget of a
:class:`~bounds.training.Guard` looks at the step itself). And three ways to fail. *Noise*: where L' cannot be told from
0 the setting sinks; more held-out prompts or a longer memory help. *A floor*: what D has of another engine, or of
staleness, no learning rate takes away; below the rate at which the two parts are equal D / L' grows again, and the
setting runs to ``low``: lower the staleness instead. *A setting that D does not answer to*, as Adam's first steps
hardly do.
"""

from __future__ import annotations

import math

from bounds._checks import number, refuse


class Budget:
    """Controller of a learning rate, number of passes, allowed staleness or threshold, by the rule above.

    Parameters
    ----------
    setting : float
        What to begin with.
    low, high : float
        It stays within.
    fraction : float
        Of L' that the bound on its error may be, in (0, 1).
    spread : float
        Largest minus smallest reward.
    memory : float
        Of earlier steps, in [0, 1): at .8 about five count.
    whole : bool
        Whether only whole numbers can be set (passes, staleness): rounded down. The rule goes on with the fraction.

    Raises
    ------
    ValueError
        For arguments out of range.

    Examples
    --------
    >>> rate = Budget(1e-4, low=1e-6, high=1e-3, fraction=0.5)
    >>> rate(surrogate_gain=0.01, kl_seq=0.02), rate.use  # D is four times what may be spent
    (5e-05, 4.0)
    """

    def __init__(
        self,
        setting: float,
        *,
        low: float,
        high: float,
        fraction: float = 0.5,
        spread: float = 1.0,
        memory: float = 0.8,
        whole: bool = False,
    ) -> None:
        self.low, self.high = number("low", low, 0.0), number("high", high, 0.0)
        if not 0.0 < self.low <= self.high < math.inf:
            refuse("low", "above 0, and not above high", f"{low}, high={high}")
        self._exact = number("setting", setting, self.low, self.high)
        self.fraction, self.spread = number("fraction", fraction, 0.0, 1.0), number("spread", spread, 0.0)
        self.memory, self.whole = number("memory", memory, 0.0, 1.0), whole
        self._gain = self._spent = 0.0

    @property
    def setting(self) -> float:
        """What is to be set now."""
        return max(math.floor(self._exact), math.ceil(self.low)) if self.whole else self._exact

    @property
    def use(self) -> float:
        """D as a share of what may be spent, over the steps that count: above 1 it is too much, inf without any L'."""
        allowed = self.fraction * self._gain
        share = self.spread * self._spent / allowed if allowed > 0.0 else math.inf
        return share if share >= 0.0 else math.inf

    def __call__(self, surrogate_gain: float, kl_seq: float) -> float:
        """Take in what a step spent, and return what is to be set for the next.

        Parameters
        ----------
        surrogate_gain, kl_seq : float
            L' and D of the step on held-out responses: those of a :class:`~bounds.training.Judgement`.

        Returns
        -------
        float
        """
        if math.isfinite(surrogate_gain) and math.isfinite(kl_seq):
            self._gain = self.memory * self._gain + (1.0 - self.memory) * surrogate_gain
            self._spent = self.memory * self._spent + (1.0 - self.memory) * kl_seq
            factor = min(max(1.0 / self.use, 0.5), 1.25) if self.use > 0.0 else 1.25
        else:
            factor = 0.5
        self._exact = min(max(self._exact * factor, self.low), self.high)
        return self.setting
