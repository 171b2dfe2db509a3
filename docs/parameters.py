"""Parameters of public functions: names, types and defaults from the signature, meanings from the docstring.

In:  a function and the text of its docstring.
Out: the text without the sentences about single parameters, and a list with an item for each parameter.
Law: a sentence is about a parameter if it begins with its name in code type. `COMMON` has the meanings of parameters with the same
     name and role in many functions, for docstrings that have no such sentence.
"""

import inspect
import re

from docstrings import inline

#: parameter -> its meaning in all functions whose docstring does not name it
COMMON = {
    "a": "An array, or an object that converts to one.",
    "allow_int": "Whether inputs may be integers, whose gradients have dtype `float0`.",
    "argnums": "The positions of the arguments to differentiate.",
    "args": "Positional arguments of the function.",
    "arr": "An array.",
    "arrays": "The arrays, in order.",
    "arys": "The arrays.",
    "assume_unique": "The inputs have no repeated elements.",
    "atol": "Absolute tolerance.",
    "axes": "The dims, in order.",
    "axis": "The dim, or the dims, to work along.",
    "axis1": "The first dim.",
    "axis2": "The second dim.",
    "axis_index_groups": "Groups of device indices that communicate separately.",
    "axis_name": "A mesh axis, or a tuple of mesh axes.",
    "b": "The second array.",
    "backend": "The platform; the default platform if None.",
    "batch_axis": "Dims of the weight that count neither as inputs nor as outputs.",
    "bins": "The number of bins, or their edges.",
    "callback": "The function on the host.",
    "check_finite": "Accepted for compatibility; values are not checked.",
    "copy": "Whether to copy when no conversion is needed.",
    "count": "The number of elements.",
    "data": "The values.",
    "ddof": "Delta degrees of freedom: the divisor is `N - ddof`.",
    "density": "Whether to normalize to a density.",
    "device": "The device or sharding of the result.",
    "devices": "The devices; all devices by default.",
    "dimension_numbers": "The roles of the dims of the operands and of the result.",
    "donate_argnames": "The names of arguments whose memory the results may reuse.",
    "donate_argnums": "The positions of arguments whose memory the results may reuse.",
    "dtype": "The dtype of the result; the natural dtype if None.",
    "equal_nan": "Whether NaNs are equal.",
    "f": "The function.",
    "file": "A path or an open file.",
    "fill_value": "The value for elements beyond the data.",
    "fun": "The function.",
    "has_aux": "Whether the function returns a pair of output and auxiliary data.",
    "holomorphic": "Whether the function is holomorphic, with complex inputs and outputs.",
    "idx": "The index of the elements.",
    "in_axes": "The dim of each argument to map over; None for none.",
    "in_axis": "The input dims of the weight.",
    "indices_are_sorted": "A promise that indices are sorted.",
    "indices_or_sections": "The number of equal parts, or the indices where parts begin.",
    "initial": "The value that reductions start from.",
    "is_leaf": "A predicate of subtrees to treat as leaves.",
    "is_leaf_takes_path": "Whether `is_leaf` receives the path as well.",
    "jaxpr": "The program.",
    "k": "The diagonal: above the main diagonal if positive.",
    "keep_unused": "Whether to keep arguments that the program does not use.",
    "keepdims": "Whether to keep reduced dims with size 1.",
    "key": "A random key; use each key once.",
    "kwargs": "Keyword arguments of the function.",
    "lhs": "The left operand.",
    "lhs_dilation": "The spacing between elements of the left operand, per spatial dim.",
    "lower": "Whether the lower triangle holds the matrix.",
    "mean": "A mean that is known already.",
    "mode": "How to treat the boundary, or indices out of bounds.",
    "name": "The name.",
    "new_val": "The value inside the `with` block.",
    "norm": "The scaling: `backward`, `ortho` or `forward`.",
    "num_segments": "The number of segments.",
    "offset": "The diagonal: above the main diagonal if positive.",
    "operand": "The array.",
    "operands": "The arrays.",
    "out": "Not supported, because arrays are immutable; must be None.",
    "out_axes": "The dim of each result to stack along.",
    "out_axis": "The output dims of the weight.",
    "out_sharding": "The sharding of the result, on meshes with explicit axes.",
    "out_shardings": "The shardings of the results.",
    "overwrite_a": "Accepted for compatibility; arguments stay unchanged.",
    "overwrite_b": "Accepted for compatibility; arguments stay unchanged.",
    "overwrite_input": "Accepted for compatibility; arguments stay unchanged.",
    "padding": "`SAME`, `VALID`, or a pair of sizes per spatial dim.",
    "path": "The folder or file.",
    "precision": "The precision of products, or the number of digits of printed values.",
    "preferred_element_type": "The accumulation dtype, also the dtype of the result.",
    "primals": "The point of evaluation.",
    "reduce_axes": "Accepted for compatibility; must be empty.",
    "ref": "The mutable array.",
    "rhs": "The right operand.",
    "rhs_dilation": "The spacing between elements of the right operand, per spatial dim.",
    "rtol": "Relative tolerance.",
    "segment_ids": "The segment of each element.",
    "shape": "The shape of the result.",
    "sharding": "The sharding of the result.",
    "size": "The size of the result, which a traced program needs as a constant.",
    "static_argnames": "The names of arguments that are constants of the program.",
    "static_argnums": "The positions of arguments that are constants of the program.",
    "step": "The step number, or the distance between values.",
    "step_size": "The learning rate, or a function from the step number to it.",
    "strides": "The step of the window per spatial dim.",
    "tree": "A pytree.",
    "treedef": "The structure of a pytree.",
    "tup": "The arrays, in order.",
    "unique_indices": "A promise that indices are unique.",
    "val": "The value.",
    "weights": "A weight for each element.",
    "where": "A mask of the elements to use.",
    "window_strides": "The step of the window per spatial dim.",
    "x": "An array, or an object that converts to one.",
    "x1": "The first array.",
    "x2": "The second array.",
    "y": "The second array.",
}

SENTENCE = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z`])")
SUBJECT = re.compile(r"(?:(?:With|Without|If) )?`(\w+)[`=]")


def split_sentences(text: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """Return the text without the sentences about parameters, and those sentences by parameter.

    The first paragraph, lists and indented blocks stay whole.
    """
    first, *others = text.split("\n\n")
    shown, meanings = [first], {}
    for paragraph in others:
        if re.search(r"^(?:- | )", paragraph, re.MULTILINE):
            shown.append(paragraph)
            continue
        remaining = []
        for sentence in SENTENCE.split(" ".join(paragraph.split())):
            subject = SUBJECT.match(sentence)
            if subject and subject[1] in names and subject[1] not in meanings:
                meanings[subject[1]] = sentence
            else:
                remaining.append(sentence)
        shown.append(" ".join(remaining))
    return "\n\n".join(paragraph for paragraph in shown if paragraph.strip()), meanings


def type_text(annotation) -> str:
    """Return an annotation as users write it; empty for `Any` and for private types."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:weft|typing|collections\.abc|numpy)\.(?:\w+\.)*(?=\w)", "", text)
    private = re.search(r"\b_[A-Za-z]", text)
    return "" if private or text in ("Any", "object", "...") else text


def parameter_names(value) -> list[str]:
    """Return the names of the parameters of a function; none if they are unknown."""
    try:
        return list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return []


def parameter_items(value, meanings: dict[str, str], known: dict[str, str]) -> list[str]:
    """Return the list of the parameters of a function; empty without parameters."""
    items = []
    for name in parameter_names(value):
        parameter = inspect.signature(value).parameters[name]
        shown = type_text(parameter.annotation)
        text = meanings.get(name, COMMON.get(name, ""))
        if name.startswith("_"):
            continue
        head = f"``{name}``" + (f" (``{shown}``)" if shown else "")
        items += [f"   - {head}: {inline(text, known)}" if text else f"   - {head}", ""]
    return [":Parameters:", "", *items] if items else []
