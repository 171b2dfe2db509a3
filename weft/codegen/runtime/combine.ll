; A reduction of `n` arrays, element by element in their order: void ${name}(ptr out, ptr addresses, i64 n, i64 elements).
; Placeholders in braces are filled in by library/process_calls.py; blocks of ${width} numbers and single ones are combine_block.ll.
${blocks}
define void @${name}(ptr %out, ptr %list, i64 %n, i64 %elements) {
entry:
  %count = mul i64 %elements, ${parts}
  %whole = and i64 %count, -${width}
  %any = icmp sgt i64 %whole, 0
  br i1 %any, label %wide, label %rest
wide:
  %i = phi i64 [ 0, %entry ], [ %i1, %wide ]
  call void @combine_${width}(ptr %out, ptr %list, i64 %n, i64 %i)
  %i1 = add i64 %i, ${width}
  %more = icmp slt i64 %i1, %whole
  br i1 %more, label %wide, label %rest
rest:
  %j = phi i64 [ 0, %entry ], [ %whole, %wide ], [ %j1, %single ]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %single, label %done
single:
  call void @combine_1(ptr %out, ptr %list, i64 %n, i64 %j)
  %j1 = add i64 %j, 1
  br label %rest
done:
  ret void
}

; As MPI calls a reduction: void (ptr in, ptr inout, ptr length, ptr datatype).
define void @${name}_mpi(ptr %in, ptr %inout, ptr %length, ptr %type) {
  %list = alloca [2 x ptr]
  %last = getelementptr ptr, ptr %list, i64 1
  store ptr %in, ptr %list, align 8
  store ptr %inout, ptr %last, align 8
  %n32 = load i32, ptr %length, align 4
  %n = sext i32 %n32 to i64
  call void @${name}(ptr %inout, ptr %list, i64 2, i64 %n)
  ret void
}
