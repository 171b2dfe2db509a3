; Call host function `number` on the addresses at `pointers`. Return 0, or 1 if it raised.
@weft_host_run = external global i8
@weft_host_arguments = internal constant [3 x i8] c"LK\00"
define internal i32 @weft_call_host(i64 %number, ptr %pointers) noinline {
entry:
  %lock = call i32 @PyGILState_Ensure()
  %address = ptrtoint ptr %pointers to i64
  %result = call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr @weft_host_run, ptr @weft_host_arguments, i64 %number, i64 %address)
  %returned = icmp ne ptr %result, null
  br i1 %returned, label %value, label %raised
value:
  %long = call i64 @PyLong_AsLong(ptr %result)
  call void @Py_DecRef(ptr %result)
  %said = trunc i64 %long to i32
  br label %done
raised:
  call void @PyErr_Fetch(ptr @weft_signal_error, ptr getelementptr (ptr, ptr @weft_signal_error, i64 1),
                         ptr getelementptr (ptr, ptr @weft_signal_error, i64 2))
  br label %done
done:
  %status = phi i32 [ %said, %value ], [ 1, %raised ]
  call void @PyGILState_Release(i32 %lock)
  ret i32 %status
}
