; A reduction of `n` arrays, element by element in their order: void ${name}(ptr out, ptr addresses, i64 n, i64 elements).
; Placeholders in braces are filled in by library/process_calls.py; blocks of ${width} numbers, stored in two ways, and single numbers are combine_block.ll.
${blocks}
define void @${name}(ptr %out, ptr %list, i64 %n, i64 %elements) {
entry:
  %count = mul i64 %elements, ${parts}
  %whole = and i64 %count, -${width}
  %any = icmp sgt i64 %whole, 0
  br i1 %any, label %wide, label %rest
wide:
  %i = phi i64 [ 0, %entry ], [ %i1, %wide ]
  call void @combine_wide(ptr %out, ptr %list, i64 %n, i64 %i)
  %i1 = add i64 %i, ${width}
  %more = icmp slt i64 %i1, %whole
  br i1 %more, label %wide, label %rest
rest:
  %j = phi i64 [ 0, %entry ], [ %whole, %wide ], [ %j1, %single ]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %single, label %done
single:
  call void @combine_single(ptr %out, ptr %list, i64 %n, i64 %j)
  %j1 = add i64 %j, 1
  br label %rest
done:
  ret void
}

; The same for large results, which go past the caches to an address that is a multiple of 64.
define void @${name}_stream(ptr %out, ptr %list, i64 %n, i64 %elements) {
entry:
  %address = ptrtoint ptr %out to i64
  %low = and i64 %address, 63
  %count = mul i64 %elements, ${parts}
  %whole = and i64 %count, -${width}
  %aligned = icmp eq i64 %low, 0
  %any = icmp sgt i64 %whole, 0
  %can = and i1 %aligned, %any
  br i1 %can, label %wide, label %plain
plain:
  call void @${name}(ptr %out, ptr %list, i64 %n, i64 %elements)
  br label %out_of_here
wide:
  %i = phi i64 [ 0, %entry ], [ %i1, %wide ]
  call void @combine_stream(ptr %out, ptr %list, i64 %n, i64 %i)
  %i1 = add i64 %i, ${width}
  %more = icmp slt i64 %i1, %whole
  br i1 %more, label %wide, label %rest
rest:
  %j = phi i64 [ %whole, %wide ], [ %j1, %single ]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %single, label %done
single:
  call void @combine_single(ptr %out, ptr %list, i64 %n, i64 %j)
  %j1 = add i64 %j, 1
  br label %rest
done:
  fence seq_cst
  br label %out_of_here
out_of_here:
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

!0 = !{i32 1}
