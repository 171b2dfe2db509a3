"""Hoisting of matmuls out of scans: the small products of all iterations become one product.

In, out: jaxprs. Three kinds of products are moved out of the body of a scan:
  - a slice of a scanned input times a loop constant moves before the loop, which then scans the products;
  - any value times a loop constant, if the product is only stacked, moves after the loop, which then stacks the value;
  - the product of two values of one iteration, if it is only added to a carry (as the gradient of a weight), moves after
    the loop, as one product that also contracts the iterations. Sums over dims of stacked values move likewise.

If a remaining product of few rows contracts a constant along its rows, the constant is transposed once, before the loop.

Laws: large products stay in the loop, and so do products whose stacked factors would need much memory.
"""

from __future__ import annotations

import math

from weft._engine.compiler.fusion.classify import computes, is_sum, loop_of
from weft._engine.core.primitive import ContractOp, registry
from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import dce, use_counts

# thresholds, measured on several machines
#: products of at least this many multiplications per iteration are as fast in the loop
_HOISTED_MOST_WORK = 1 << 25
#: maximal size of a stacked operand
_HOISTED_MOST_BYTES = 1 << 26
#: maximal number of rows at which transposing the constant costs as much as the product
_HOISTED_FEW_ROWS = 64
#: minimal number of elements of a constant that is transposed before the loop
_HOISTED_LEAST_TRANSPOSED = 1 << 14
#: minimal number of iterations for transposing a constant before the loop
_HOISTED_LEAST_ITERATIONS = 4


def lift_products(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with products hoisted out of its scans."""
    eqns = []
    for eqn in jaxpr.eqns:
        eqns += _HoistableScan(eqn).hoist() if _is_scan(eqn) else [eqn]
    return jaxpr if len(eqns) == len(jaxpr.eqns) else jaxpr.replace(eqns=eqns)


def _is_scan(eqn: Eqn) -> bool:
    loop = loop_of(eqn)
    return loop is not None and loop.counted and eqn.params["length"] > 1


class _HoistableScan:
    """One scan under transformation: its constants, carries, scanned inputs and stacked results, by variable of the body."""

    def __init__(self, eqn: Eqn):
        self.eqn, self.body, self.length = eqn, eqn.params["jaxpr"], eqn.params["length"]
        constants, carried = eqn.params["num_consts"], eqn.params["num_carry"]
        both = list(zip(self.body.invars, eqn.invars))
        self.constants: dict[Var, Atom] = dict(both[:constants])
        self.carried = both[constants : constants + carried]
        self.along: dict[Var, Atom] = dict(both[constants + carried :])
        results = list(zip(self.body.outvars, eqn.outvars))
        self.carries, self.stacks = results[:carried], results[carried:]
        self.maker: dict[Var, Eqn] = {v: e for e in self.body.eqns for v in e.outvars}
        self.uses = use_counts(self.body)
        self.before: list[Eqn] = []
        self.after: list[Eqn] = []

    def hoist(self) -> list[Eqn]:
        """Return the equations before the scan, the scan, and the equations after it."""
        for inner in self.body.eqns:
            constant = self._constant_factor(inner)
            rows = None if constant is None else self._rows(inner.invars[0])
            if constant is not None and rows is not None:
                product = Var(self._stack_over_iterations(inner.outvars[0].aval))
                self.before.append(self._multiply_all_iterations(inner, rows, constant, product))
                self.along[inner.outvars[0]] = product
        self._hoist_products()
        self._find_carried_sums(
            lambda candidate: self._is_small_product(candidate) and self._fit(candidate.invars),
            new=True,
        )
        self._find_carried_sums(is_sum, new=False)
        eqns = self._with_transposed_constants(self._remaining_equations())
        return (
            [*self.before, self._rebuild(eqns), *self.after]
            if self.before or self.after
            else [self.eqn]
        )

    # ---- the choice of products

    def _is_small_product(self, inner: Eqn) -> bool:
        if not isinstance(inner.primitive, ContractOp):
            return False
        (contracted, _), _ = inner.params["dimension_numbers"]
        work = inner.outvars[0].aval.size * math.prod(
            [inner.invars[0].aval.shape[d] for d in contracted]
        )
        return work < _HOISTED_MOST_WORK and all(type(a) is Var for a in inner.invars)

    def _constant_factor(self, inner: Eqn) -> Atom | None:
        """Return the operand of the scan that is the constant second factor of a small product, if the products of all iterations are
        rows of one product; otherwise None."""
        if not self._is_small_product(inner):
            return None
        _, (batch, _) = inner.params["dimension_numbers"]
        first, second = inner.invars
        is_row = first not in self.constants and not batch and self._fit(inner.outvars)
        return self.constants.get(second) if is_row and type(second) is not Literal else None

    def _fit(self, atoms: list) -> bool:
        return all(
            a not in self.constants and a.aval.nbytes * self.length <= _HOISTED_MOST_BYTES
            for a in atoms
        )

    def _hoist_products(self) -> None:
        stacks, self.stacks = self.stacks, []
        leaving: list[tuple[Eqn, Atom, Var]] = []
        for value, result in stacks:
            producer = (
                None
                if type(value) is Literal or value in self.along or self.uses[value] != 1
                else self.maker.get(value)
            )
            is_unread = type(result) is DropVar
            constant = None if producer is None or is_unread else self._constant_factor(producer)
            if producer is not None and constant is not None and self._fit(producer.invars[:1]):
                leaving.append((producer, constant, result))
            else:
                self.stacks.append((value, result))
        for producer, constant, result in leaving:
            self.after.append(
                self._multiply_all_iterations(
                    producer, self._stack(producer.invars[0]), constant, result
                )
            )

    def _find_carried_sums(self, leaves, new: bool) -> None:
        """Move products or sums that are only added to a carry after the loop, if `leaves` accepts them.

        `new`: the scan may stack further values for this."""
        pairs, self.carries, self.carried = list(zip(self.carried, self.carries)), [], []
        for (mine, first), (value, result) in pairs:
            producer = self._find_carried_sum(mine, value) if type(result) is not DropVar else None
            if (
                producer is None
                or not leaves(producer)
                or not (new or all(map(self._find_stack, producer.invars)))
            ):
                self.carried.append((mine, first))
                self.carries.append((value, result))
                continue
            summed = Var(producer.outvars[0].aval)
            self.after.append(
                self._sum_all_iterations(
                    producer, [self._stack(a) for a in producer.invars], summed
                )
            )
            self.after.append(self.maker[value].replace(invars=[first, summed], outvars=[result]))

    def _find_carried_sum(self, mine: Var, value: Atom) -> Eqn | None:
        """Return the producer of the term that is added to the carry `mine`, if neither has other readers; otherwise None."""
        if type(value) is Literal:
            return None
        total = self.maker.get(value)
        if total is None or computes(total) != "add" or mine not in total.invars:
            return None
        term = total.invars[total.invars.index(mine) == 0]
        if type(term) is Literal or not self.uses[value] == self.uses[mine] == self.uses[term] == 1:
            return None
        return self.maker.get(term)

    def _with_transposed_constants(self, eqns: list[Eqn]) -> list[Eqn]:
        """Return the equations of the body with constants that products would transpose in each iteration transposed before the loop."""
        transposed: dict[Var, Var] = {}
        replaced = []
        for inner in eqns:
            constant = self._constant_to_transpose(inner)
            if constant is not None:
                (mine, _), batch = inner.params["dimension_numbers"]
                if constant not in transposed:
                    aval = constant.aval.update(shape=constant.aval.shape[::-1])
                    outside, transposed[constant] = Var(aval), Var(aval)
                    params = {"permutation": (1, 0)}
                    self.before.append(
                        Eqn(
                            registry["transpose"],
                            [self.constants[constant]],
                            [outside],
                            params,
                            inner.source,
                        )
                    )
                    self.constants[transposed[constant]] = outside
                inner = inner.replace(
                    invars=[inner.invars[0], transposed[constant]],
                    params={**inner.params, "dimension_numbers": ((mine, (0,)), batch)},
                )
            replaced.append(inner)
        return replaced

    def _constant_to_transpose(self, inner: Eqn) -> Var | None:
        """Return the constant operand of a matmul of few rows if the product is faster with the constant transposed; otherwise None."""
        if not isinstance(inner.primitive, ContractOp) or self.length < _HOISTED_LEAST_ITERATIONS:
            return None
        constant = inner.invars[1]
        if type(constant) is Literal or constant not in self.constants:
            return None
        (_, other), (batch, _) = inner.params["dimension_numbers"]
        aval = constant.aval
        pays = (
            other == (1,)
            and not batch
            and aval.ndim == 2
            and aval.size >= _HOISTED_LEAST_TRANSPOSED
            and aval.explicit is None
            and inner.outvars[0].aval.size <= _HOISTED_FEW_ROWS * aval.shape[0]
        )
        return constant if pays else None

    # ---- the products outside of the loop

    def _stack_over_iterations(self, aval):
        return aval.update(shape=(self.length, *aval.shape))

    def _rows(self, atom: Atom) -> Atom | None:
        """Return the scanned operand if `atom` is its slice in an iteration; None otherwise."""
        return None if type(atom) is Literal else self.along.get(atom)

    def _find_stack(self, atom: Atom) -> Atom | None:
        """Return the array of the values of all iterations if the scan reads or returns one; otherwise None."""
        return self._rows(atom) or next(
            (r for v, r in self.stacks if v is atom and type(r) is not DropVar), None
        )

    def _stack(self, atom: Atom) -> Atom:
        """Return the array of the values of all iterations; the scan stacks them if necessary."""
        stack = self._find_stack(atom)
        if stack is None:
            stack = Var(self._stack_over_iterations(atom.aval))
            self.stacks.append((atom, stack))
        return stack

    def _multiply_all_iterations(self, inner: Eqn, rows: Atom, constant: Atom, result: Var) -> Eqn:
        """Return the product of the first factors of all iterations with the constant."""
        (mine, other), batch = inner.params["dimension_numbers"]
        numbers = ((tuple([d + 1 for d in mine]), other), batch)
        return inner.replace(
            invars=[rows, constant],
            outvars=[result],
            params={**inner.params, "dimension_numbers": numbers},
        )

    def _sum_all_iterations(self, inner: Eqn, operands: list[Atom], result: Var) -> Eqn:
        """Return `inner`, a reduction or a matmul, with its operands of all iterations stacked and also summed over iterations."""
        later = lambda dims: tuple([d + 1 for d in dims])
        if is_sum(inner):
            params = {**inner.params, "axes": (0, *later(inner.params["axes"]))}
        else:
            (mine, other), (mine_batch, other_batch) = inner.params["dimension_numbers"]
            numbers = (
                ((0, *later(mine)), (0, *later(other))),
                (later(mine_batch), later(other_batch)),
            )
            params = {**inner.params, "dimension_numbers": numbers}
        return inner.replace(invars=operands, outvars=[result], params=params)

    def _remaining_equations(self) -> list[Eqn]:
        """Return the equations of the body that remain in it."""
        scanned = set(self.along)
        eqns = [e for e in self.body.eqns if scanned.isdisjoint(e.outvars)]
        return list(dce(self._body(eqns)).eqns)

    def _body(self, eqns: list[Eqn]) -> Jaxpr:
        body = self.body
        results = [v for v, _ in (*self.carries, *self.stacks)]
        return Jaxpr(
            body.constvars,
            body.consts,
            [v for v, _ in self._match_inputs()],
            results,
            eqns,
            body.effects,
            body.name,
        )

    def _match_inputs(self) -> list[tuple[Var, Atom]]:
        """Return the inputs of the body with the operands of the scan."""
        return [*self.constants.items(), *self.carried, *self.along.items()]

    def _rebuild(self, eqns: list[Eqn]) -> Eqn:
        inputs = self._match_inputs()
        params = {
            **self.eqn.params,
            "jaxpr": self._body(eqns),
            "num_consts": len(self.constants),
            "num_carry": len(self.carried),
            "linear": (False,) * len(inputs),
        }
        return self.eqn.replace(
            invars=[a for _, a in inputs],
            outvars=[r for _, r in (*self.carries, *self.stacks)],
            params=params,
        )
