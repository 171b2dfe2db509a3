; One task of a parallel copy. Words: target, source, bytes, bytes per task.
define internal void @weft_copy(ptr %ctx, i64 %task, i64 %worker) {
entry:
  %target = load ptr, ptr %ctx
  %source_at = getelementptr i64, ptr %ctx, i64 1
  %source = load ptr, ptr %source_at
  %size_at = getelementptr i64, ptr %ctx, i64 2
  %size = load i64, ptr %size_at
  %chunk_at = getelementptr i64, ptr %ctx, i64 3
  %chunk = load i64, ptr %chunk_at
  %from = mul i64 %task, %chunk
  %left = sub i64 %size, %from
  %short = icmp slt i64 %left, %chunk
  %count = select i1 %short, i64 %left, i64 %chunk
  %to = getelementptr i8, ptr %target, i64 %from
  %of = getelementptr i8, ptr %source, i64 %from
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %of, i64 %count, i1 false)
  ret void
}
