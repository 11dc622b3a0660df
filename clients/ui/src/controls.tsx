/** Buttons, fields, switches, avatars: what every page is made of. */

import { type Signal, useSignal } from "@preact/signals";
import type { ButtonHTMLAttributes, ComponentChildren, Ref } from "preact";
import { useId } from "preact/hooks";
import c from "./controls.module.css";
import { Icon, type IconName } from "./Icon.js";
import { s } from "./strings.en.js";

type Attributes = Omit<
  ButtonHTMLAttributes<HTMLButtonElement>,
  "type" | "disabled" | "icon" | "role" | "size"
>;
type ButtonProps = Attributes & {
  type?: "button" | "submit";
  disabled?: boolean;
  look?: "primary" | "danger" | "quiet";
  children: ComponentChildren;
};

export function Button({ look, type = "button", children, ...rest }: ButtonProps) {
  return (
    <button {...rest} type={type} class={`${c.button} ${look ? c[look] : ""}`}>
      {children}
    </button>
  );
}

type IconButtonProps = Attributes & {
  icon: IconName;
  name: string;
  type?: "button" | "submit";
  disabled?: boolean;
  size?: number;
  buttonRef?: Ref<HTMLButtonElement>;
};

/** A button with a picture; its name is what screen readers say, and what a pointer shows. */
export function IconButton({ icon, name, size, type = "button", buttonRef, ...rest }: IconButtonProps) {
  return (
    <button {...rest} ref={buttonRef ?? null} type={type} class={c.icon} aria-label={name} title={name}>
      <Icon name={icon} {...(size && { size })} />
    </button>
  );
}

type FieldProps = {
  label: string;
  value: Signal<string>;
  hint?: string;
  type?: "text" | "password" | "search" | "date" | "datetime-local";
  autoComplete?: string;
  isInvalid?: boolean;
  required?: boolean;
  autoFocus?: boolean;
  maxLength?: number;
  inputRef?: Ref<HTMLInputElement>;
  onKeyDown?: (event: KeyboardEvent) => void;
};

export function Field({
  label,
  value,
  hint,
  type = "text",
  isInvalid,
  inputRef,
  autoFocus,
  ...rest
}: FieldProps) {
  const id = useId();
  const isShown = useSignal(false);
  const isPassword = type === "password";
  const input = (
    <input
      {...rest}
      ref={inputRef ?? null}
      id={id}
      class={c.input}
      type={(isPassword && isShown.value ? "text" : type) as "text"}
      value={value.value}
      onInput={(event) => {
        value.value = event.currentTarget.value;
      }}
      dir="auto"
      autofocus={autoFocus ?? false}
      aria-invalid={isInvalid ? "true" : undefined}
      aria-describedby={hint ? `${id}-hint` : undefined}
      spellcheck={false}
      autocapitalize="none"
    />
  );
  return (
    <div class={c.field}>
      <label class={c.label} for={id}>
        {label}
      </label>
      {isPassword ? (
        <div class={c.withAction}>
          {input}
          <IconButton
            icon={isShown.value ? "eyeOff" : "eye"}
            name={isShown.value ? s.hidePassword : s.showPassword}
            onClick={() => {
              isShown.value = !isShown.value;
            }}
          />
        </div>
      ) : (
        input
      )}
      {hint && (
        <span id={`${id}-hint`} class={c.hint}>
          {hint}
        </span>
      )}
    </div>
  );
}

type SwitchProps = { label: string; isOn: boolean; onChange: (isOn: boolean) => void; disabled?: boolean };

export function Switch({ label, isOn, onChange, disabled = false }: SwitchProps) {
  return (
    <button
      type="button"
      role="switch"
      aria-checked={isOn}
      disabled={disabled}
      class={c.switch}
      onClick={() => onChange(!isOn)}
    >
      {label}
      <span class={c.track} />
    </button>
  );
}

type SelectProps = {
  label: string;
  value: string;
  options: readonly (readonly [value: string, name: string])[];
  onChange: (value: string) => void;
};

export function Select({ label, value, options, onChange }: SelectProps) {
  const id = useId();
  return (
    <div class={c.field}>
      <label class={c.label} for={id}>
        {label}
      </label>
      <select id={id} class={c.input} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([one, name]) => (
          <option key={one} value={one}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

/** What went wrong, said aloud when it appears. */
export function Alert({ children }: { children: ComponentChildren }) {
  return (
    <div role="alert" class={c.alert}>
      {children}
    </div>
  );
}

const HUES = 12;

/** One of 12 hues, always the same for the same id. */
export function hueOf(id: string): number {
  let sum = 0;
  for (let at = 0; at < id.length; at += 1) sum = (sum * 31 + id.charCodeAt(at)) >>> 0;
  return sum % HUES;
}

export const nameClass = (id: string): string => c[`name${hueOf(id)}`] ?? "";

type AvatarProps = {
  id: string;
  name: string;
  size?: 24 | 32 | 40 | 48 | 88;
  isGroup?: boolean;
  isOnline?: boolean;
};

export function Avatar({ id, name, size = 48, isGroup = false, isOnline = false }: AvatarProps) {
  return (
    <span
      class={`${c.avatar} ${c[`size${size}`]} ${c[`hue${hueOf(id)}`]} ${isGroup ? c.group : ""}`}
      aria-hidden="true"
    >
      {initials(name)}
      {isOnline && <span class={c.dot} />}
    </span>
  );
}

function initials(name: string): string {
  const words = name
    .normalize("NFC")
    .split(/[\s._-]+/u)
    .map((word) => word.match(/[\p{L}\p{N}]/u)?.[0] ?? "")
    .filter(Boolean);
  return [words[0], words.length > 1 ? words.at(-1) : ""].join("").toLocaleUpperCase() || "#";
}
