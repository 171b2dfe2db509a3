; The calls of a PJRT plugin in each call of a compiled program. %call has the plugin's function LoadedExecutable_Execute, its
; arguments (80 bytes; fields 4, 7 and 8, the tables of arguments, results and events, are set here), and the numbers of devices,
; arguments and results. %operands has a pointer per argument to its buffers by device; %outputs receives the results' buffers.
@weft_plugin_live_buffers = global i64 0

define i64 @weft_plugin_count(i64 %more) {
entry:
  %before = atomicrmw add ptr @weft_plugin_live_buffers, i64 %more seq_cst
  %now = add i64 %before, %more
  ret i64 %now
}

define ptr @weft_plugin_execute(ptr %call, ptr %operands, ptr %outputs, ptr %events) {
entry:
  %execute = load ptr, ptr %call
  %template_at = getelementptr i64, ptr %call, i64 1
  %template = load ptr, ptr %template_at
  %devices_at = getelementptr i64, ptr %call, i64 2
  %devices = load i64, ptr %devices_at
  %args_at = getelementptr i64, ptr %call, i64 3
  %args = load i64, ptr %args_at
  %results_at = getelementptr i64, ptr %call, i64 4
  %results = load i64, ptr %results_at
  %struct = alloca [10 x i64], align 8
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %struct, ptr align 8 %template, i64 80, i1 false)
  %all_args = mul i64 %devices, %args
  %all_results = mul i64 %devices, %results
  %argument_table = alloca ptr, i64 %devices, align 8
  %result_table = alloca ptr, i64 %devices, align 8
  %argument_rows = alloca ptr, i64 %all_args, align 8
  %result_rows = alloca ptr, i64 %all_results, align 8
  br label %device
device:
  %d = phi i64 [ 0, %entry ], [ %d_after, %gathered ]
  %more_devices = icmp slt i64 %d, %devices
  br i1 %more_devices, label %tables, label %ready
tables:
  %argument_offset = mul i64 %d, %args
  %argument_row = getelementptr ptr, ptr %argument_rows, i64 %argument_offset
  %argument_place = getelementptr ptr, ptr %argument_table, i64 %d
  store ptr %argument_row, ptr %argument_place
  %result_offset = mul i64 %d, %results
  %result_row = getelementptr ptr, ptr %result_rows, i64 %result_offset
  %result_place = getelementptr ptr, ptr %result_table, i64 %d
  store ptr %result_row, ptr %result_place
  br label %argument
argument:
  %a = phi i64 [ 0, %tables ], [ %a_after, %gather ]
  %more_args = icmp slt i64 %a, %args
  br i1 %more_args, label %gather, label %gathered
gather:
  %operand_at = getelementptr ptr, ptr %operands, i64 %a
  %operand = load ptr, ptr %operand_at
  %buffer_at = getelementptr ptr, ptr %operand, i64 %d
  %buffer = load ptr, ptr %buffer_at
  %slot = getelementptr ptr, ptr %argument_row, i64 %a
  store ptr %buffer, ptr %slot
  %a_after = add i64 %a, 1
  br label %argument
gathered:
  %d_after = add i64 %d, 1
  br label %device
ready:
  %arguments_field = getelementptr i64, ptr %struct, i64 4
  store ptr %argument_table, ptr %arguments_field
  %results_field = getelementptr i64, ptr %struct, i64 7
  store ptr %result_table, ptr %results_field
  %events_field = getelementptr i64, ptr %struct, i64 8
  store ptr %events, ptr %events_field
  %error = call ptr %execute(ptr %struct)
  %failed = icmp ne ptr %error, null
  br i1 %failed, label %out, label %count
count:
  %now = call i64 @weft_plugin_count(i64 %all_results)
  br label %result
result:
  %n = phi i64 [ 0, %count ], [ %n_after, %scatter ]
  %more_results = icmp slt i64 %n, %all_results
  br i1 %more_results, label %scatter, label %out
scatter:
  %k = udiv i64 %n, %devices
  %of = urem i64 %n, %devices
  %row_offset = mul i64 %of, %results
  %from_offset = add i64 %row_offset, %k
  %from = getelementptr ptr, ptr %result_rows, i64 %from_offset
  %made = load ptr, ptr %from
  %to = getelementptr ptr, ptr %outputs, i64 %n
  store ptr %made, ptr %to
  %n_after = add i64 %n, 1
  br label %result
out:
  ret ptr %error
}

; Free buffers. %destroy is the plugin's function Buffer_Destroy; its struct has the size, extensions and the buffer.
define void @weft_plugin_destroy(ptr %destroy, ptr %buffers, i64 %count) {
entry:
  %struct = alloca [3 x i64], align 8
  store i64 24, ptr %struct
  %extensions = getelementptr i64, ptr %struct, i64 1
  store i64 0, ptr %extensions
  %field = getelementptr i64, ptr %struct, i64 2
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n_after, %free ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %free, label %done
free:
  %at = getelementptr ptr, ptr %buffers, i64 %n
  %buffer = load ptr, ptr %at
  store ptr %buffer, ptr %field
  %error = call ptr %destroy(ptr %struct)
  %n_after = add i64 %n, 1
  br label %next
done:
  %less = sub i64 0, %count
  %now = call i64 @weft_plugin_count(i64 %less)
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
