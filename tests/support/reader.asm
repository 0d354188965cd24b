; A guest that reads its whole disk again and again, checks each byte, and writes to some of it. It talks on COM1.
;
;   sector 0          this program and a partition table
;   sectors 64 to END each holds its own number, 128 times 32 bits; in every 16th chunk of 64 sectors the first one is
;                     written in each pass, and holds in its top byte how often it was
;
; With each interrupt of its clock (18.2 a second) it reads 256 KiB, and prints "." if all of that was right, "E" for
; each chunk that could not be read or written, and "X" for each that is wrong; "P" at the end of each pass.

        bits    16
        org     0x7c00

COM1            equ 0x3f8
BIOS_CLOCK      equ 0x46c
READ            equ 0x42                ; INT 13h extensions
WRITE           equ 0x43
FIRST_DISK      equ 0x80
CHUNK           equ 64                  ; sectors of one read
A_TICK          equ 8                   ; chunks
IS_WRITTEN      equ 0x3c0               ; of a chunk's first sector: none of these bits
BUFFER          equ 0x1000              ; segment

start:  cli
        xor     ax, ax
        mov     ds, ax
        mov     ss, ax
        mov     sp, 0x7c00
        mov     ax, BUFFER
        mov     es, ax
        cld
        sti
        mov     al, 'R'
        call    print
        mov     dword [pass], 0

next_pass:
        mov     dword [packet.sector], CHUNK
next_tick:
        mov     bx, [BIOS_CLOCK]
.wait:  hlt
        cmp     bx, [BIOS_CLOCK]
        je      .wait
        mov     byte [is_right], '.'
        mov     bp, A_TICK
.chunk: mov     ah, READ
        mov     byte [packet.count], CHUNK
        call    disk
        jc      .error
        call    check
        jne     .wrong
        test    word [packet.sector], IS_WRITTEN
        jnz     .next
        call    mark
        jnc     .next
.error: mov     al, 'E'
        jmp     .tell
.wrong: mov     al, 'X'
.tell:  call    print
        mov     byte [is_right], 0
.next:  add     dword [packet.sector], CHUNK
        cmp     dword [packet.sector], END
        jae     .end
        dec     bp
        jnz     .chunk
        call    tell_tick
        jmp     next_tick
.end:   call    tell_tick
        mov     al, 'P'
        call    print
        inc     dword [pass]
        jmp     next_pass

tell_tick:
        mov     al, [is_right]
        test    al, al
        jnz     print
        ret

; Zero flag: the buffer holds what it should.
check:  xor     di, di
        mov     si, CHUNK
        mov     eax, [packet.sector]
        test    ax, IS_WRITTEN
        jnz     .plain
        mov     edx, [pass]
        shl     edx, 24
        or      eax, edx
        mov     cx, 128
        repe    scasd
        jne     .done
        dec     si
        mov     eax, [packet.sector]
        inc     eax
.plain: mov     cx, 128
        repe    scasd
        jne     .done
        inc     eax
        dec     si
        jnz     .plain
.done:  ret

; Write the first sector of this chunk. Carry: it failed.
mark:   xor     di, di
        mov     eax, [pass]
        inc     eax
        shl     eax, 24
        or      eax, [packet.sector]
        mov     cx, 128
        rep     stosd
        mov     byte [packet.count], 1
        mov     ah, WRITE
disk:   mov     al, 0
        mov     dl, FIRST_DISK
        mov     si, packet
        int     0x13
        ret

print:  mov     dx, COM1 + 5            ; al
        push    ax
.full:  in      al, dx
        test    al, 0x20
        jz      .full
        pop     ax
        mov     dl, COM1 & 0xff
        out     dx, al
        ret

packet: db      16, 0
.count: dw      CHUNK
        dw      0, BUFFER
.sector:
        dq      CHUNK
pass:   dd      0
is_right: db    0

        times   446 - ($ - $$) db 0
        db      0x80, 0, 2, 0, 0xda, 0, 4, 0
        dd      1, 3
        times   48 db 0
        dw      0xaa55
