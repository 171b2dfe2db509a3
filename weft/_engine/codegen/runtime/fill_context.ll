; Write the addresses of a step's operands, given by `count` pairs (index of a word of `slots`, byte offset to add).
define internal void @weft_fill(ptr %ctx, ptr %slots, ptr %pairs, i64 %count) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %pair = getelementptr [2 x i64], ptr %pairs, i64 %i
  %position = load i64, ptr %pair, align 8
  %offset_at = getelementptr i64, ptr %pair, i64 1
  %offset = load i64, ptr %offset_at, align 8
  %slot = getelementptr ptr, ptr %slots, i64 %position
  %base = load ptr, ptr %slot, align 8
  %address = getelementptr i8, ptr %base, i64 %offset
  %to = getelementptr ptr, ptr %ctx, i64 %i
  store ptr %address, ptr %to, align 8
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
