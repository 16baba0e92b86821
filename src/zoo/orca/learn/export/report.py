"""What `est.export` wrote, and how well it agrees, to be read by a person or asked by a program."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.orca.learn.export.agreement import Agreement


@dataclass(frozen=True)
class Tensor:
    """An input or an output of a written model: its name, its type, its shape (None: any number of rows)."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} ({', '.join('?' if each is None else str(each) for each in self.shape)})"


@dataclass(frozen=True)
class Int8Loss:
    """What int8 costs, measured on the rows that it was calibrated with.

    Attributes:
        rows: how many those are.
        before, after: each figure of the model as it was, and in int8; empty where there are no labels.
        agreement: how far the outputs are from those before.
        same_choice: the part of the rows whose largest output is the same one; None where there is no choice to make.
        smaller: how many times smaller the weights' file became.
    """

    rows: int
    before: dict[str, float]
    after: dict[str, float]
    agreement: Agreement
    same_choice: float | None
    smaller: float

    @property
    def loss(self) -> dict[str, float]:
        """Each figure after, less the one before."""
        return {name: self.after[name] - before for name, before in self.before.items()}

    def __str__(self) -> str:
        figures = [
            f"{name} {before:.4g} -> {self.after[name]:.4g} ({self.loss[name]:+.2g})"
            for name, before in self.before.items()
        ]
        if self.same_choice is not None:
            figures.append(f"the same choice for {self.same_choice:.1%} of the rows")
        figures.append(f"outputs differ by {self.agreement.relative:.1e} of the largest")
        size = f"{self.smaller:.1f} times smaller" if self.smaller >= 1 else f"{1 / self.smaller:.1f} times larger"
        return f"{', '.join(figures)}, over {self.rows} rows; {size}"


@dataclass(frozen=True, repr=False)
class ExportReport:
    """What was written, and how its predictions agree with the estimator's.

    Attributes:
        format: "openvino", "onnx", "torchscript" or "torch.export".
        path: the file to load; `files` are all that belong to it.
        size: of all files, in bytes.
        by: how the model was taken from its framework.
        runtime: what read the file again, and computed.
        agreement: how far its predictions are from est.predict's; `tolerance` is how far they may be.
        int8: what int8 costs; None where it was not asked for.

    Example:
        report = est.export("openvino", "model.xml")
        print(report)
        report.agreement.relative
    """

    format: str
    path: str
    files: tuple[str, ...]
    size: int
    by: str
    runtime: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    agreement: Agreement
    tolerance: float
    int8: Int8Loss | None = None

    @property
    def max_difference(self) -> float:
        """The largest difference from est.predict, before int8."""
        return self.agreement.difference

    def __str__(self) -> str:
        lines = [
            ("written", f"{', '.join(self.files)} ({_size(self.size)}), by {self.by}"),
            ("inputs", ", ".join(map(str, self.inputs))),
            ("outputs", ", ".join(map(str, self.outputs))),
            ("agrees", self._agreement()),
        ]
        if self.int8 is not None:
            lines.append(("int8", str(self.int8)))
        return "\n".join(f"✓ {name:<7}  {text}" for name, text in lines)

    def __repr__(self) -> str:
        return str(self)

    def _agreement(self) -> str:
        found = self.agreement
        batches = " and ".join(map(str, sorted(set(found.batches))))
        return (
            f"{self.runtime} differs from est.predict by {found.difference:.1e} at most, {found.relative:.1e} of the "
            f"largest output (tolerance {self.tolerance:.0e}), in batches of {batches} rows"
        )


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
