; Millpond's smallest guest: one boot sector that proves which disk it was given and that the disk keeps what is
; written to it. It talks on COM1 and needs a BIOS (SeaBIOS), one disk and 1 MiB of memory.
;
;   sector 0   this program and a partition table
;   sector 1   the marker: text, ended by a NUL           -> "DISK 80 <text>", a line for every BIOS disk
;   sector 2   how often it was booted, 16 bits           -> "BOOTS 0001", or "READONLY" if it cannot be written
;   sector 3   the last tick, 16 bits                     -> "TICK 0001", once a second after "READY"
;
; Built with SCRIBBLES, it also writes to half a MiB of its memory 18 times a second.
;
; Keys on the serial line: m reads the markers again, q switches off. The ACPI power button switches off too. A device
; that the host wants back (i440FX) is let go within a tick of the clock.

        bits    16
        org     0x7c00                  ; where a BIOS loads the boot sector

COM1            equ 0x3f8               ; the PC's first serial port: data; its line status is 5 above
BIOS_DISKS      equ 0x475               ; BIOS data area: how many hard disks there are
BIOS_CLOCK      equ 0x46c               ; BIOS data area: counts up 18.2 times a second
%ifndef CLOCK_SECOND
%define CLOCK_SECOND 18                 ; a guest that ticks faster is built with less
%endif
PM_STATUS       equ 0x600               ; ACPI PM1 event block where SeaBIOS puts it on i440FX and Q35
PM_ENABLE       equ PM_STATUS + 2
PM_CONTROL      equ PM_STATUS + 4
PM_BUTTON       equ 0x0100              ; bit 8 of status and enable: the power button (ACPI 4.8.3.1)
PM_SOFT_OFF     equ 0x2000              ; SLP_EN with sleep type 0, which is "off" on QEMU's PIIX4 and ICH9
PCI_WANTED      equ 0xae04              ; QEMU's docs/specs/acpi_pci_hotplug: slots of the root bus to be let go
PCI_EJECT       equ PCI_WANTED + 4
FIRST_DISK      equ 0x80
READ            equ 0x42                ; INT 13h extensions: read and write by sector number
WRITE           equ 0x43
BUFFER          equ 0x8000              ; free memory above this sector

start:
        cli
        xor     ax, ax
        mov     ds, ax
        mov     es, ax
        mov     ss, ax
        mov     sp, 0x7c00
        sti
        mov     dx, PM_ENABLE           ; QEMU drops a press of the button that is not enabled
        mov     ax, PM_BUTTON
        out     dx, ax

        call    show_disks

        mov     al, 2                   ; count this boot
        mov     ah, READ
        call    first_disk
        inc     word [BUFFER]
        mov     al, 2
        mov     ah, WRITE
        call    first_disk
        mov     si, text_readonly
        jc      .told
        mov     si, text_boots
        call    print
        mov     ax, [BUFFER]
        call    print_word
        mov     si, text_ready_below
.told:  call    print

        mov     di, BUFFER              ; from here on the buffer holds nothing but the tick
        mov     cx, 256
        xor     ax, ax
        rep     stosw
        mov     bx, [BIOS_CLOCK]        ; bx: when the last tick was due

wait_a_second:
        hlt                             ; the clock's interrupt wakes us
%ifdef SCRIBBLES
        mov     ax, 0x1000              ; write into each page from 64 KiB to 576 KiB
.page:  mov     es, ax
        inc     word [es:0]
        add     ax, 0x100               ; 4 KiB
        cmp     ah, 0x90
        jb      .page
        push    ds
        pop     es
%endif
        call    obey_keys
        mov     dx, PCI_WANTED
        in      eax, dx
        test    eax, eax
        jz      .kept
        mov     dl, PCI_EJECT & 0xff    ; the lowest of these slots
        out     dx, eax
.kept:  mov     dx, PM_STATUS
        in      ax, dx
        test    ah, PM_BUTTON >> 8
        jnz     switch_off
        mov     ax, [BIOS_CLOCK]
        sub     ax, bx
        cmp     ax, CLOCK_SECOND
        jb      wait_a_second
        add     bx, CLOCK_SECOND

        inc     word [BUFFER]
        mov     al, 3
        mov     ah, WRITE
        call    first_disk
        mov     si, text_tick
        call    print
        mov     ax, [BUFFER]
        call    print_word
        call    end_line
        jmp     wait_a_second

; Obey one key, if one was typed. The buffer holds the tick, so it is put back after "m".
obey_keys:
        mov     dx, COM1 + 5
        in      al, dx
        test    al, 0x01                ; line status: a byte has arrived
        jz      .done
        mov     dl, COM1 & 0xff
        in      al, dx
        cmp     al, 'q'
        je      switch_off
        cmp     al, 'm'
        jne     .done
        push    word [BUFFER]
        call    show_disks
        mov     di, BUFFER
        mov     cx, 256
        xor     ax, ax
        rep     stosw
        pop     word [BUFFER]
.done:  ret

switch_off:
        mov     dx, PM_CONTROL
        mov     ax, PM_SOFT_OFF
        out     dx, ax
        cli
        hlt

; Print the marker of every disk that the BIOS knows; "?" where it cannot be read.
show_disks:
        mov     dl, FIRST_DISK
.next:  mov     al, dl
        sub     al, FIRST_DISK
        cmp     al, [BIOS_DISKS]
        jae     .done
        mov     si, text_disk
        call    print
        mov     al, dl
        call    print_byte
        mov     al, ' '
        call    print_char
        mov     al, 1
        mov     ah, READ
        call    disk
        mov     si, BUFFER
        jnc     .text
        mov     si, text_unreadable
.text:  call    print
        call    end_line
        inc     dl
        jmp     .next
.done:  ret

; ah = READ or WRITE, al = sector, dl = disk: moves one sector to or from the buffer. Carry: it failed.
first_disk:
        mov     dl, FIRST_DISK
disk:   mov     [packet.sector], al
        mov     al, 0                   ; for WRITE: do not verify
        mov     si, packet
        int     0x13
        ret

print_word:                             ; ax, four hexadecimal digits
        push    ax
        mov     al, ah
        call    print_byte
        pop     ax
print_byte:                             ; al, two hexadecimal digits
        push    ax
        shr     al, 4
        call    print_digit
        pop     ax
        and     al, 0x0f
print_digit:
        add     al, '0'
        cmp     al, '9'
        jbe     print_char
        add     al, 'A' - '9' - 1
print_char:                             ; al; keeps every other register
        push    dx
        push    ax
        mov     dx, COM1 + 5
.full:  in      al, dx
        test    al, 0x20                ; line status: room for a byte
        jz      .full
        pop     ax
        mov     dl, COM1 & 0xff
        out     dx, al
        pop     dx
        ret

end_line:
        mov     si, text_line_end
print:                                  ; the text at si
        lodsb
        test    al, al
        jz      .done
        call    print_char
        jmp     print
.done:  ret

packet: db      16, 0                   ; INT 13h disk address packet: its size,
        dw      1                       ; one sector,
        dw      BUFFER, 0               ; to or from here,
.sector:
        dq      0                       ; and which

text_disk:              db 'DISK ', 0
text_unreadable:        db '?', 0
text_boots:             db 'BOOTS ', 0
text_tick:              db 'TICK ', 0
text_readonly:          db 'READONLY'
text_ready_below:       db 13, 10, 'READY'
text_line_end:          db 13, 10, 0

; Image inspectors (oslo.utils) refuse a boot sector whose partition table is empty, so one partition
; of type DA ("data, no file system") covers the marker and the counters.
        times   446 - ($ - $$) db 0
        db      0x80, 0, 2, 0, 0xda, 0, 4, 0
        dd      1, 3
        times   48 db 0
        dw      0xaa55
