"""The one exception for faults that a person can mend."""


class InputError(ValueError):
    """Input that cannot be used: one sentence saying what is wrong, where, and what to do.

    Scripts print the sentence and exit with code 2; nothing has been written by then.
    """
