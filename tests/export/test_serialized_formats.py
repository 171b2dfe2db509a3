"""Bytes of exported programs that earlier versions wrote are read, or refused with both formats named."""

import base64
import zlib

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import export
from weft.export import format as bytes_format

#: format 2, `lambda x: sin(x) * 2` of float32[3]
FIXED = (
    "c-mc3!EO^V5KXh&G^Oo<MgmR<At7yq*i$7gRYk>(sC%I2usB%<JKgmfubnoBN?cMJ$rr@%oqPh!c!N@5dAzgsn>XV(zUDLghTrJgSYC9x-"
    "{N1tyPYs@A@Tj0Q@LUl2j4#}Sv4ux8Tj2fyU_;x@ihjgZE!lPO~owuUf!Pmgk(4d5&Jk_F#7dJ0WM8ymzp==4=x4Myf`<8EeSq~R>-"
    "YfrI+|E2t{Gt*$J%gzr#mD_?=V8vh2ej9AO!CEKJr}@&m|l`p5s$G=iBzsxOr4f>*U!UTQWCoV|iCB)ThPwP>qgVqd)2cvLq3s;DeK2!zwx@Kh"
    "UFNh=qq$6j96^_9~^7tN&&9O5O$zFGllCnC`c3T#QYUXqB{K5C?DqfQ<k-"
    "qJ0os12%eWs5q)s`_~;EjO&Bv`>OoX&y>Ln3XJO>3hwTl|ghdcpqag-@zR*9413CXvGpw#WV4o(%c0TZz;1lZ+8$Oy5#yebYFD+p;Y-"
    "+(F|L4R6G0M)?QI7h7SqW_|ucBl#0XJA6#*+bEjNGM{aY!)q^zqx@4A~5H>5CY6nDy8Li<Q#@K{i>vYK>Lm#Iw=wyu3NnFUOMa&pD=e|!xg{aK"
    ";3)!$qi8+TpTFf<WJyIrbd*8rlM|{Gf#b;bx`WMK3Iv)"
)
#: format 2, `lambda x: x[:5] * 2` of float32[n]
SYMBOLIC = (
    "c-m!B--{D55N^BMU*7dW5AOXQlr8AugCfW&CxW2GMeK_&Wl48alU_C(vq^gu1YcUM<VB2suTHY<UC|}UPG-Kz%zQITJW~(wl_;gcd873;{QV<n"
    "`0tC2OmC)n%29!>>76rFOmp<yn)V!B32DupB{;{mb37|$fs{3!w6^}T(Qsl(Xu@=X+|>*`oXS|O1g@+(8WSXN{z6K$a&U9H2UM$KS~8l&75(gx"
    "VVctdAY@<$<DG4sl>&oqxVG=DX>vPiZtQw@Za}w&M7b`+3jVnZ>2hez9@*{pZ(xo_foY!GBuU=<fzKbKhO*Ob68*Gp!!oz8QzA&_lz()2zr{r<"
    "S7U)P|7Iu03ksr3MESsOlRi0)Mr{zz>KDmfa*y0U061#!C+<r>@o}<J;#f#pP(>HOc{gQcd8vhq63nUcp5!6;K3QAn4+%)ev)m`~b=1c@>1jls"
    "nRdnYsgYNQX4l<8rI1u9<vCy~J8A%B1LmUN=%4`8t(2rW+!76ixC-"
    "jWgF>_V>32{}FJ)9=iI~gw)H5Haz9N7rihP?*r^*oX^FYpChA?IqzFEN4@PDE<ev{WOUGkyU0D`ofXhJ`jq-BmNPjC8@xGGAm{!w-"
    "Fk|UULyM;@Kaz;6}TXS@Yu}C%7l{4+@TOWk!3x<@NZfJdw3GD`}3lWvX*iL}Pw$g%On}7_9Y(Yp6c9sxGRDhXSjIrstq`X&RdO5AoltIj)2^Mn"
    "!s#{#9^&|o9O`;)bvV=p&e*xr^c|i"
)


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))


def test_programs_for_fixed_sizes_of_format_2_are_read():
    program = export.deserialize(unpacked(FIXED))
    np.testing.assert_allclose(program.call(wnp.ones(3)), 2 * np.sin(np.ones(3)), rtol=1e-6)
    assert not program.uses_global_constants


def test_programs_for_symbolic_sizes_of_format_2_are_refused():
    with pytest.raises(
        ValueError, match=f"format 2 and symbolic sizes; this .* format {bytes_format.VERSION}"
    ):
        export.deserialize(unpacked(SYMBOLIC))


@pytest.mark.parametrize("version", [0, 1, bytes_format.VERSION + 1])
def test_other_formats_are_refused(version):
    data = bytes(export.export(weft.jit(wnp.sin))(wnp.ones(3)).serialize())
    place = len(bytes_format.MAGIC)
    with pytest.raises(
        ValueError,
        match=f"have format {version}; this weft reads formats 2 to {bytes_format.VERSION}",
    ):
        export.deserialize(data[:place] + bytes([version]) + data[place + 1 :])


def test_expressions_and_constraints_are_kept():
    n, m = export.symbolic_shape("n, m", constraints=["n >= 2", "mod(m, 3) == 0"])
    function = weft.jit(lambda x: (x[1:, : x.shape[1] // 3], x.reshape(-1), x * x.shape[0]))
    again = export.deserialize(
        export.export(function)(weft.ShapeDtypeStruct((n, m), np.float32)).serialize()
    )
    assert [str(a.shape) for a in again.out_avals] == [
        "(n - 1, floordiv(m, 3))",
        "(m*n,)",
        "(n, m)",
    ]
    with pytest.raises(ValueError, match="violate the constraint n >= 2: 'n' = 1"):
        again.call(np.ones((1, 3), np.float32))
    with pytest.raises(
        ValueError, match=r"violate the constraint mod\(m, 3\) == 0: 'mod\(m, 3\)' = 1"
    ):
        again.call(np.ones((2, 4), np.float32))
    assert again.call(np.ones((2, 3), np.float32))[0].shape == (1, 1)
