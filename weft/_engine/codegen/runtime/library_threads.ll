; The first caller that needs a single-threaded library takes its threads away; the last one gives them back.
@weft_library_users = external global [2 x i32]
declare i32 @weft_library_threads()
declare void @weft_library_set_threads(i32)
define internal void @weft_library_enter() {
entry:
  %before = atomicrmw add ptr @weft_library_users, i32 1 seq_cst
  %threads = call i32 @weft_library_threads()
  %alone = icmp eq i32 %threads, 1
  br i1 %alone, label %done, label %take
take:
  %kept = getelementptr i32, ptr @weft_library_users, i64 1
  store atomic i32 %threads, ptr %kept seq_cst, align 4
  call void @weft_library_set_threads(i32 1)
  br label %done
done:
  ret void
}
define internal void @weft_library_leave() {
entry:
  %before = atomicrmw sub ptr @weft_library_users, i32 1 seq_cst
  %last = icmp eq i32 %before, 1
  br i1 %last, label %give, label %done
give:
  %kept = getelementptr i32, ptr @weft_library_users, i64 1
  %threads = atomicrmw xchg ptr %kept, i32 0 seq_cst
  %none = icmp eq i32 %threads, 0
  br i1 %none, label %done, label %restore
restore:
  call void @weft_library_set_threads(i32 %threads)
  br label %done
done:
  ret void
}
