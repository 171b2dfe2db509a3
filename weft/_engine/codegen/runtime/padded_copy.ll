; One task of a copy into rows with padding, which is filled with zeros. Words: target, source, bytes of a row, bytes before a
; run, bytes of a run, number of rows, rows per task, number of dims; then, for each dim that counts rows, innermost first: its
; extent, the first index with a run, the number of indices with a run, and the source's stride in bytes.
define internal void @weft_pad(ptr %ctx, i64 %task, i64 %worker) {
entry:
  %target = load ptr, ptr %ctx
  %source_at = getelementptr i64, ptr %ctx, i64 1
  %source = load ptr, ptr %source_at
  %row_at = getelementptr i64, ptr %ctx, i64 2
  %row = load i64, ptr %row_at
  %lead_at = getelementptr i64, ptr %ctx, i64 3
  %lead = load i64, ptr %lead_at
  %run_at = getelementptr i64, ptr %ctx, i64 4
  %run = load i64, ptr %run_at
  %rows_at = getelementptr i64, ptr %ctx, i64 5
  %rows = load i64, ptr %rows_at
  %share_at = getelementptr i64, ptr %ctx, i64 6
  %share = load i64, ptr %share_at
  %dims_at = getelementptr i64, ptr %ctx, i64 7
  %dims = load i64, ptr %dims_at
  %begin = mul i64 %task, %share
  %past = add i64 %begin, %share
  %end = call i64 @llvm.smin.i64(i64 %past, i64 %rows)
  %until_run = add i64 %lead, %run
  %rest = sub i64 %row, %until_run
  br label %next
next:
  %r = phi i64 [ %begin, %entry ], [ %after, %done ]
  %more = icmp slt i64 %r, %end
  br i1 %more, label %one, label %out
one:
  %place = mul i64 %r, %row
  %to = getelementptr i8, ptr %target, i64 %place
  br label %dim
dim:
  %d = phi i64 [ 0, %one ], [ %d_after, %inside ]
  %left = phi i64 [ %r, %one ], [ %left_after, %inside ]
  %at = phi i64 [ 0, %one ], [ %at_after, %inside ]
  %has_dim = icmp slt i64 %d, %dims
  br i1 %has_dim, label %look, label %copy
look:
  %four = mul i64 %d, 4
  %words = add i64 %four, 8
  %extent_at = getelementptr i64, ptr %ctx, i64 %words
  %extent = load i64, ptr %extent_at
  %first_at = getelementptr i64, ptr %extent_at, i64 1
  %first = load i64, ptr %first_at
  %count_at = getelementptr i64, ptr %extent_at, i64 2
  %count = load i64, ptr %count_at
  %stride_at = getelementptr i64, ptr %extent_at, i64 3
  %stride = load i64, ptr %stride_at
  %index = urem i64 %left, %extent
  %left_after = udiv i64 %left, %extent
  %own = sub i64 %index, %first
  %has_run = icmp ult i64 %own, %count
  br i1 %has_run, label %inside, label %fill
inside:
  %moved = mul i64 %own, %stride
  %at_after = add i64 %at, %moved
  %d_after = add i64 %d, 1
  br label %dim
copy:
  %of = getelementptr i8, ptr %source, i64 %at
  %to_run = getelementptr i8, ptr %to, i64 %lead
  %to_rest = getelementptr i8, ptr %to_run, i64 %run
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %lead, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %to_run, ptr %of, i64 %run, i1 false)
  call void @llvm.memset.p0.i64(ptr %to_rest, i8 0, i64 %rest, i1 false)
  br label %done
fill:
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %row, i1 false)
  br label %done
done:
  %after = add i64 %r, 1
  br label %next
out:
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
