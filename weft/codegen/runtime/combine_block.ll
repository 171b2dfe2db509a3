; ${width} numbers of `n` arrays, from number %i on; ${kind}.
define internal void @combine_${kind}(ptr %out, ptr %list, i64 %n, i64 %i) alwaysinline {
entry:
  %p0 = load ptr, ptr %list, align 8
  %q0 = getelementptr ${memory}, ptr %p0, i64 %i
  %m0 = load <${width} x ${memory}>, ptr %q0, align ${align}
${widen_first}
  br label %loop
loop:
  %k = phi i64 [ 1, %entry ], [ %k1, %body ]
  %a = phi <${width} x ${register}> [ %first, %entry ], [ %c, %body ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %body, label %done
body:
  %pp = getelementptr ptr, ptr %list, i64 %k
  %p = load ptr, ptr %pp, align 8
  %q = getelementptr ${memory}, ptr %p, i64 %i
  %m = load <${width} x ${memory}>, ptr %q, align ${align}
${widen}
${operation}
  %k1 = add i64 %k, 1
  br label %loop
done:
${narrow}
  %t = getelementptr ${memory}, ptr %out, i64 %i
  store <${width} x ${memory}> %r, ptr %t, align ${store}
  ret void
}
