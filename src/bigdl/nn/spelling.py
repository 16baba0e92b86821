"""A misspelt argument is answered with the right spelling."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from zoo.orca.errors import UnknownArgumentError

#: What BigDL's constructors took last, and what has nothing to say here.
IGNORED = ("bigdl_type", "jvalue")


def check_arguments(name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call that a signature (without `self`) does not take, with the spelling that was meant.

    >>> try:
    ...     check_arguments("Linear", inspect.signature(lambda inputs, outputs: None), (3,), {"ouputs": 2})
    ... except TypeError as error:
    ...     print(error)
    Linear has no argument 'ouputs'. Did you mean outputs=2? It takes: Linear(inputs, outputs).
    """
    parameters = signature.parameters
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        for keyword in kwargs:
            if keyword not in parameters:
                raise UnknownArgumentError(unknown(name, keyword, kwargs[keyword], parameters, signature))
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UnknownArgumentError(f"{name}: {error}. It takes: {name}{_shown(signature)}.") from None


def unknown(name: str, keyword: str, value: Any, known: Iterable[str], signature: inspect.Signature) -> str:
    """What to say to a keyword that is not among the known ones."""
    offered = [each for each in known if each not in IGNORED]
    by_case = {each.lower().replace("_", ""): each for each in offered}
    meant = difflib.get_close_matches(keyword.lower().replace("_", ""), by_case, n=1, cutoff=0.5)
    hint = f" Did you mean {by_case[meant[0]]}={value!r}?" if meant else ""
    return f"{name} has no argument '{keyword}'.{hint} It takes: {name}{_shown(signature)}."


def answers_spelling(constructor: Callable[..., None]) -> Callable[..., None]:
    """An `__init__` whose unknown arguments are answered with the right spelling, under the name of the object's class.

    A base class puts it on the constructors of all its subclasses, in `__init_subclass__`. `bigdl_type` is taken and
    ignored, whether or not the constructor names it.
    """
    signature = inspect.signature(constructor)
    own = signature.replace(parameters=list(signature.parameters.values())[1:])

    @functools.wraps(constructor)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        if "bigdl_type" not in own.parameters:
            kwargs.pop("bigdl_type", None)
        check_arguments(type(self).__name__, own, args, kwargs)
        constructor(self, *args, **kwargs)

    return checked


def _shown(signature: inspect.Signature) -> str:
    """A signature as users would type it: without types, and without what is ignored."""
    shown = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in signature.parameters.values()
        if each.name not in IGNORED
    ]
    return str(inspect.Signature(shown))
