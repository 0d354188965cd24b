; The boot sector of a disk that is two things at once: raw, it starts the micro guest; taken for qcow2 by its first
; bytes, it names a file of the host. The header comes first and runs as harmless additions, up to the offset of the
; backing file's name, whose last two bytes are a jump to here.
;
;   sector 0   the qcow2 header and, behind it, this program
;   sector 1–3 as the micro guest has them
;   sector 8   the micro guest's own boot sector

        bits    16
        org     0x0600                  ; free memory, where this goes to make room for the guest's boot sector

LANDING         equ 0x7c80              ; where the jump leads: 128 bytes into the boot sector
GUEST           equ 0x7c00
LENGTH          equ end - begin

begin:
        cli
        xor     ax, ax
        mov     ds, ax
        mov     es, ax
        mov     ss, ax
        mov     sp, GUEST
        sti
        cld
        mov     si, LANDING
        mov     di, begin
        mov     cx, LENGTH
        rep     movsb
        jmp     0:load
load:
        mov     ah, 0x42                ; INT 13h extensions: read by sector number
        mov     dl, 0x80
        mov     si, packet
        int     0x13
        jmp     0:GUEST

packet: db      16, 0                   ; its size,
        dw      1                       ; one sector,
        dw      GUEST, 0                ; to here,
        dq      8                       ; from there
end:
